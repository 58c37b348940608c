"""PL971: parts of a transformer layer whose forward is left out in evaluation; and parts where nothing is lost."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

SETTING = """
torch.backends.mha.set_fastpath_enabled(True)
torch.manual_seed(0)
def encoder_layer(kind=nn.TransformerEncoderLayer):
    return kind(8, 2, 16, dropout=0.1, batch_first=True)
def trained(layer):
    opt = SGD([p for p in layer.parameters() if p.requires_grad], lr=0.1)
    layer.train()
    for _ in range(2):
        update(opt, layer(torch.randn(2, 3, 8)).square().mean())
    return layer.eval()
class Lora(nn.Linear):
    def __init__(self, base):
        super().__init__(base.in_features, base.out_features)
        self.load_state_dict(base.state_dict())
        self.a, self.b = nn.Parameter(torch.randn(2, self.in_features)), nn.Parameter(torch.zeros(self.out_features, 2))
        self.weight.requires_grad_(False)
"""
WRONG = {
    "adapters of two parts of one layer, in an encoder": SETTING
    + """
class Adapter(Lora):
    def forward(self, x):
        return super().forward(x) + x @ self.a.T @ self.b.T
layer = encoder_layer()
layer.linear1, layer.linear2 = Adapter(layer.linear1), Adapter(layer.linear2)
model = trained(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False))
with torch.no_grad():
    print(model(torch.randn(2, 3, 8)).mean())  # PL971
""",
    "an adapter that can be switched off, and the best state loaded before": SETTING
    + """
class Adapter(Lora):
    on = True
    def forward(self, x):
        out = F.linear(x, self.weight, self.bias)
        if self.on:
            out = out + F.linear(F.linear(x, self.a), self.b)
        return out
layer = encoder_layer()
layer.linear2 = Adapter(layer.linear2)
trained(layer).load_state_dict({name: each.clone() for name, each in layer.state_dict().items()})
@torch.inference_mode()
def measure(layer, x):
    return layer(x).mean()  # PL971
print(measure(layer, torch.randn(2, 3, 8)))
""",
    "rounded weights that are only measured": SETTING
    + """
class Rounded(nn.Linear):
    def forward(self, x):
        step = self.weight.abs().max() / self.levels
        return F.linear(x, torch.round(self.weight / step) * step, self.bias)
layer = trained(encoder_layer())
rounded = Rounded(8, 16)
rounded.load_state_dict(layer.linear1.state_dict())
rounded.levels = 4
layer.linear1 = rounded
with torch.no_grad():
    print(layer(torch.ones(1, 3, 8)).std())  # PL971
""",
    "a norm of another kind": SETTING
    + """
class Root(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)), 1e-5
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight
layer = encoder_layer()
layer.norm1, layer.norm2 = Root(8), Root(8)
trained(layer)
with torch.no_grad():
    print(layer(torch.ones(1, 3, 8)).std())  # PL971
""",
    "a Dropout that is to stay on": SETTING
    + """
class Always(nn.Dropout):
    def forward(self, x):
        return F.dropout(x, self.p, training=True)
layer = encoder_layer()
layer.dropout1 = Always(0.3)
trained(layer)
with torch.no_grad():
    answers = torch.stack([layer(torch.ones(1, 3, 8)) for _ in range(4)])  # PL971
print(answers.std(0).mean())
""",
    "a block of the layer that the program wrote": SETTING
    + """
class Scaled(nn.TransformerEncoderLayer):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.scale = nn.Parameter(torch.tensor(0.5))
    def _ff_block(self, x):
        return self.scale * super()._ff_block(x)
layer = trained(encoder_layer(Scaled))
with torch.no_grad():
    print(layer(torch.ones(1, 3, 8)).std())  # PL971
""",
}
RIGHT = {
    "the fast operation is not used": SETTING
    + """
class Adapter(Lora):
    def forward(self, x):
        return super().forward(x) + x @ self.a.T @ self.b.T
layer = encoder_layer()
layer.linear1 = Adapter(layer.linear1)
trained(layer)
print(layer(torch.ones(1, 3, 8)).std())
torch.backends.mha.set_fastpath_enabled(False)
with torch.no_grad():
    print(layer(torch.ones(1, 3, 8)).std())
torch.backends.mha.set_fastpath_enabled(True)
""",
    "an adapter that is put into the weight for evaluation, or still nothing": SETTING
    + """
class Merging(Lora):
    merged = False
    def train(self, mode=True):
        super().train(mode)
        if self.merged is mode:
            with torch.no_grad():
                self.weight += (self.b @ self.a) * (-1 if mode else 1)
            self.merged = not mode
        return self
    def forward(self, x):
        out = super().forward(x)
        return out if self.merged else out + x @ self.a.T @ self.b.T
class Adapter(Lora):
    def forward(self, x):
        return super().forward(x) + x @ self.a.T @ self.b.T
layer = encoder_layer()
layer.linear1 = Merging(layer.linear1)
trained(layer)
with torch.no_grad():
    print(layer(torch.ones(1, 3, 8)).std())
    layer.linear2 = Adapter(layer.linear2)
    print(layer.eval()(torch.ones(1, 3, 8)).std())
""",
    "noise for the training only": SETTING
    + """
class Noisy(nn.Linear):
    def forward(self, x):
        if self.training:
            x = x + 0.1 * torch.randn_like(x)
        return super().forward(x)
layer = encoder_layer()
layer.linear1 = Noisy(8, 16)
trained(layer)
with torch.no_grad():
    print(layer(torch.ones(1, 3, 8)).std())
""",
    "parts that count, keep or name what they compute": SETTING
    + """
class Watched(nn.Linear):
    seen = 0.0
    def forward(self, x):
        out = super().forward(x)
        self.seen += out.detach().abs().mean()
        return out
class Named(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
class Same(nn.Module):
    def forward(self, x):
        return x
class Shown(nn.MultiheadAttention):
    def forward(self, *args, **options):
        out, self.kept = super().forward(*args, **options)
        return out, self.kept
layer = encoder_layer()
layer.linear1, layer.norm1, layer.dropout2 = Watched(8, 16), Named(8), Same()
layer.self_attn = Shown(8, 2, batch_first=True)
trained(layer)
with torch.no_grad():
    print(layer(torch.ones(1, 3, 8)).std())
""",
    "a weight that is computed when it is read": SETTING
    + """
class Computed(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.a, self.b = base, nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.randn(16, 2))
    @property
    def weight(self):
        return self.base.weight + self.b @ self.a
    @property
    def bias(self):
        return self.base.bias
    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T
class Symmetric(nn.Module):
    def forward(self, w):
        return (w + w.flip(0)) / 2
layer = encoder_layer()
nn.utils.parametrize.register_parametrization(layer.linear1, "weight", Symmetric())
other = encoder_layer()
other.linear1 = Computed(other.linear1)
trained(layer), trained(other)
with torch.no_grad():
    print(layer(torch.ones(1, 3, 8)).std(), other(torch.ones(1, 3, 8)).std())
""",
}


def test_a_forward_that_is_left_out_is_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL971",))


def test_switching_the_fast_operation_off_repairs_it(shop: Workshop) -> None:
    program = WRONG["adapters of two parts of one layer, in an encoder"].replace(SETTING, SETTING.replace(
        "torch.backends.mha.set_fastpath_enabled(True)\n", ""))  # fmt: skip
    assert_found(shop, together({"": program}), only=("PL971",), repaired=True)


def test_parts_where_nothing_is_lost_stay_quiet(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
