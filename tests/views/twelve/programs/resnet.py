"""ResNet-18 for 32 x 32 pictures, narrower; one epoch of synthetic data."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def conv3x3(inside, outside, stride=1):
    return nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = conv3x3(inside, outside, stride)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = conv3x3(outside, outside)
        self.bn2 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride=stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        identity = self.shortcut(x)
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        out += identity
        return out


class ResNet(nn.Module):
    def __init__(self, blocks=(2, 2, 2, 2), width=8, classes=10):
        super().__init__()
        self.inside = width
        self.stem = nn.Sequential(conv3x3(3, width), nn.BatchNorm2d(width), nn.ReLU())
        self.layer1 = self.stage(width, blocks[0], 1)
        self.layer2 = self.stage(2 * width, blocks[1], 2)
        self.layer3 = self.stage(4 * width, blocks[2], 2)
        self.layer4 = self.stage(8 * width, blocks[3], 2)
        self.head = nn.Linear(8 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stage(self, width, count, stride):
        layers = []
        for one in [stride] + [1] * (count - 1):
            layers.append(BasicBlock(self.inside, width, one))
            self.inside = width
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.stem(x)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def loader(batches, size):
    for _ in range(batches):
        labels = torch.randint(0, 10, (size,))
        pictures = torch.randn(size, 3, 32, 32) + labels.view(-1, 1, 1, 1) / 10
        yield pictures, labels


def train(model, batches):
    model.train()
    seen = right = 0
    for pictures, labels in batches:
        optimizer.zero_grad()
        logits = model(pictures)
        loss = criterion(logits, labels)
        loss.backward()
        optimizer.step()
        seen += len(labels)
        right += (logits.argmax(1) == labels).sum().item()
    return right / seen


model = ResNet()
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
print("accuracy", train(model, loader(2, 8)))
