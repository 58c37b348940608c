# Chinese names and comments, emoji in strings: 中文注释和表情 🙂 must not shift positions.
import torch

权重 = torch.tensor([1.0, 2.0], requires_grad=True)  # 叶子张量 🌱
说明 = "🔥🙂"; 隐藏 = torch.sigmoid(权重)
print("结果 🎉", 隐藏.detach(), 说明)
def 平方(输入): "𝒳²"; return 输入**2
输出 = 平方(隐藏).sum(); 隐藏.mul_(2)
输出.backward()
