"""Every layer of ``torch.nn`` in lockstep: forward, backward and a step of an optimizer, in training and in evaluation.

A program is one layer. Both engines must agree on everything; what is mirrored is listed beside
the layer, and is nothing else.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from typing import Any

import pytest
import torch

from pitfall_lab.trace import Trace
from pitfall_lab.verify import trace_program
from tests.turns import todays

#: The layer | its input, or what is called with ``net`` | operations that are mirrored.
LAYERS = """
nn.Linear(6, 3) | torch.randn(2, 6)
nn.Linear(6, 3, bias=False) | torch.randn(2, 4, 6)
nn.Linear(6, 3) | torch.randn(2, 4, 6)
nn.Bilinear(3, 4, 5) | net(torch.randn(2, 3), torch.randn(2, 4))
nn.Identity() | torch.randn(2, 6)
nn.Flatten() | torch.randn(2, 3, 4)
nn.Unflatten(1, (2, 3)) | torch.randn(2, 6)
nn.Conv1d(4, 6, 3) | torch.randn(2, 4, 8)
nn.Conv1d(4, 6, 3, padding='same', bias=False) | torch.randn(2, 4, 8)
nn.Conv1d(4, 6, 3, padding=1, padding_mode='circular') | torch.randn(2, 4, 8)
nn.Conv2d(4, 6, 3, padding=1) | torch.randn(2, 4, 5, 6)
nn.Conv2d(4, 6, 3, stride=2, dilation=2, groups=2) | torch.randn(2, 4, 6, 6)
nn.Conv2d(4, 6, 2, padding='same', padding_mode='reflect') | torch.randn(2, 4, 5, 6)
nn.Conv2d(4, 6, 3) | torch.randn(2, 4, 5, 6).contiguous(memory_format=torch.channels_last)
nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last) | torch.randn(2, 4, 5, 6)
nn.Conv2d(4, 6, 3) | torch.randn(4, 5, 6)
nn.Conv3d(2, 3, 2) | torch.randn(1, 2, 3, 4, 4)
nn.ConvTranspose1d(4, 6, 3, stride=2) | torch.randn(2, 4, 5)
nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2) | torch.randn(2, 4, 3, 3)
nn.ConvTranspose3d(2, 3, 2) | torch.randn(1, 2, 2, 2, 2)
nn.LazyConv2d(6, 3) | torch.randn(2, 4, 5, 6) | torch.Tensor.data.__get__ torch.Tensor.data.__set__ torch.Tensor.double torch.Tensor.requires_grad_
nn.Unfold(2, stride=2) | torch.randn(2, 4, 4, 4)
nn.Fold((3, 3), 2) | torch.randn(2, 12, 4)
nn.MaxPool1d(2) | torch.randn(2, 4, 7)
nn.MaxPool2d(2) | torch.randn(2, 4, 5, 6)
nn.MaxPool2d(3, 2, 1, ceil_mode=True, return_indices=True) | torch.randn(2, 4, 5, 6)
nn.MaxPool3d(2) | torch.randn(1, 2, 4, 4, 4)
nn.MaxUnpool2d(2) | net(*F.max_pool2d(torch.randn(2, 4, 4, 6, requires_grad=True), 2, return_indices=True))
nn.AvgPool1d(2) | torch.randn(2, 4, 7)
nn.AvgPool2d(2, padding=1, count_include_pad=False) | torch.randn(2, 4, 5, 6)
nn.AvgPool3d(2) | torch.randn(1, 2, 4, 4, 4)
nn.AdaptiveAvgPool1d(3) | torch.randn(2, 4, 7)
nn.AdaptiveAvgPool2d((2, None)) | torch.randn(2, 4, 5, 6)
nn.AdaptiveAvgPool2d(1) | torch.randn(2, 4, 5, 6)
nn.AdaptiveMaxPool1d(3) | torch.randn(2, 4, 7)
nn.AdaptiveMaxPool2d(2) | torch.randn(2, 4, 5, 6)
nn.LPPool1d(2, 2) | torch.randn(2, 4, 7)
nn.LPPool2d(2, 2) | torch.randn(2, 4, 5, 6)
nn.FractionalMaxPool2d(2, output_size=2) | torch.randn(2, 4, 5, 6) | torch.nn.functional.fractional_max_pool2d
nn.BatchNorm1d(4) | torch.randn(5, 4)
nn.BatchNorm1d(4, track_running_stats=False, affine=False) | torch.randn(5, 4, 3)
nn.BatchNorm1d(4, momentum=None) | torch.randn(5, 4)
nn.BatchNorm2d(4) | torch.randn(2, 4, 5, 6)
nn.LayerNorm(6) | torch.randn(2, 4, 6)
nn.LayerNorm((4, 6), bias=False) | torch.randn(2, 4, 6)
nn.GroupNorm(2, 4) | torch.randn(2, 4, 5, 6)
nn.InstanceNorm1d(4) | torch.randn(2, 4, 6)
nn.InstanceNorm2d(4, affine=True, track_running_stats=True) | torch.randn(2, 4, 5, 6)
nn.RMSNorm(6) | torch.randn(2, 4, 6)
nn.LocalResponseNorm(2) | torch.randn(2, 4, 5, 6)
nn.Dropout(0.5) | torch.randn(2, 6)
nn.Dropout(0.5, inplace=True) | torch.randn(2, 6)
nn.Dropout1d(0.5) | torch.randn(2, 4, 6)
nn.Dropout2d(0.5) | torch.randn(2, 4, 5, 6)
nn.Dropout3d(0.5) | torch.randn(2, 4, 2, 3, 2)
nn.AlphaDropout(0.5) | torch.randn(2, 6)
nn.FeatureAlphaDropout(0.5) | torch.randn(2, 4, 6)
nn.Embedding(7, 3, padding_idx=0) | torch.tensor([[0, 1], [5, 5]])
nn.Embedding(7, 3, max_norm=1.0) | torch.tensor([[0, 1], [5, 5]])
nn.Embedding(7, 3, scale_grad_by_freq=True) | torch.tensor([[0, 1], [5, 5]])
nn.Embedding(7, 3, sparse=True) | torch.tensor([[0, 1], [5, 5]]) | torch.embedding torch.Tensor.add_ torch.Tensor.detach torch.Tensor.clone
nn.EmbeddingBag(7, 3) | torch.tensor([[0, 1], [5, 5]])
nn.EmbeddingBag(7, 3, mode='sum') | net(torch.tensor([0, 1, 5, 5]), torch.tensor([0, 3]), per_sample_weights=torch.rand(4, requires_grad=True))
nn.EmbeddingBag(7, 3, mode='max', max_norm=1.0) | torch.tensor([[0, 1], [5, 5]])
nn.RNN(4, 5) | torch.randn(3, 2, 4)
nn.RNN(4, 5, 2, bidirectional=True, batch_first=True, nonlinearity='relu') | torch.randn(3, 2, 4)
nn.LSTM(4, 5) | torch.randn(3, 2, 4)
nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True) | torch.randn(3, 2, 4)
nn.LSTM(4, 5, bias=False) | net(torch.randn(3, 2, 4), (torch.randn(1, 2, 5, requires_grad=True), torch.randn(1, 2, 5)))
nn.LSTM(4, 5, proj_size=3) | torch.randn(3, 2, 4)
nn.LSTM(4, 5, 2, dropout=0.5) | torch.randn(3, 2, 4)
nn.LSTM(4, 5) | torch.randn(3, 4)
nn.LSTM(4, 5) | net(nn.utils.rnn.pack_padded_sequence(torch.randn(3, 2, 4), [3, 2]))[1] | torch._pack_padded_sequence torch.zeros torch.lstm
nn.GRU(4, 5) | torch.randn(3, 2, 4)
nn.GRU(4, 5, 2, bidirectional=True, bias=False) | torch.randn(3, 2, 4)
nn.RNNCell(4, 5) | torch.randn(2, 4)
nn.LSTMCell(4, 5) | torch.randn(2, 4)
nn.GRUCell(4, 5, bias=False) | torch.randn(2, 4)
nn.MultiheadAttention(8, 2, dropout=0.5) | net(x3, x3, x3, need_weights=False)
nn.MultiheadAttention(8, 2, batch_first=True) | net(x3, x3 * 2, x3 + 1, attn_mask=torch.ones(2, 2).tril() == 0)
nn.MultiheadAttention(8, 2, bias=False, kdim=6, vdim=6) | net(x3, torch.randn(4, 2, 6), torch.randn(4, 2, 6), key_padding_mask=torch.tensor([[False] * 4, [False] * 3 + [True]]))
nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True) | net(x3, x3, x3)
nn.TransformerEncoderLayer(8, 2, 16) | torch.randn(3, 2, 8)
nn.TransformerEncoderLayer(8, 2, 16, norm_first=True, activation='gelu', batch_first=True, dropout=0.0) | torch.randn(3, 2, 8)
nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0) | net(x3, torch.randn(4, 2, 8), tgt_is_causal=True, tgt_mask=nn.Transformer.generate_square_subsequent_mask(3))
nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 2) | torch.randn(3, 2, 8)
nn.Transformer(8, 2, 1, 1, 16, dropout=0.0) | net(torch.randn(3, 2, 8), torch.randn(4, 2, 8))
nn.GELU() | torch.randn(2, 6)
nn.GELU('tanh') | torch.randn(2, 6)
nn.SiLU(inplace=True) | torch.randn(2, 6)
nn.Mish() | torch.randn(2, 6)
nn.Softplus() | torch.randn(2, 6)
nn.ELU() | torch.randn(2, 6)
nn.SELU(inplace=True) | torch.randn(2, 6)
nn.CELU() | torch.randn(2, 6)
nn.GLU() | torch.randn(2, 6)
nn.PReLU() | torch.randn(2, 6)
nn.PReLU(4) | torch.randn(2, 4, 3)
nn.RReLU() | torch.randn(2, 6)
nn.RReLU(inplace=True) | torch.randn(2, 6)
nn.Hardswish() | torch.randn(2, 6)
nn.Hardsigmoid() | torch.randn(2, 6)
nn.Hardtanh() | torch.randn(2, 6)
nn.ReLU(inplace=True) | torch.randn(2, 6)
nn.ReLU6() | torch.randn(2, 6)
nn.LeakyReLU() | torch.randn(2, 6)
nn.LogSigmoid() | torch.randn(2, 6)
nn.Softsign() | torch.randn(2, 6)
nn.Tanhshrink() | torch.randn(2, 6)
nn.Softshrink() | torch.randn(2, 6)
nn.Hardshrink() | torch.randn(2, 6)
nn.Threshold(0.1, 0.0) | torch.randn(2, 6)
nn.Softmin(dim=1) | torch.randn(2, 6)
nn.Softmax(dim=1) | torch.randn(2, 6)
nn.Softmax2d() | torch.randn(2, 3, 2, 2)
nn.LogSoftmax(dim=1) | torch.randn(2, 6)
nn.AdaptiveLogSoftmaxWithLoss(6, 10, [4]) | net(torch.randn(3, 6), torch.tensor([1, 5, 9])).loss | torch.Tensor.nonzero torch.Tensor.index_copy_
nn.Sigmoid() | torch.randn(2, 6)
nn.Tanh() | torch.randn(2, 6)
nn.PixelShuffle(2) | torch.randn(1, 4, 2, 3)
nn.PixelUnshuffle(2) | torch.randn(1, 1, 4, 6)
nn.ChannelShuffle(2) | torch.randn(1, 4, 2, 3)
nn.Upsample(scale_factor=2) | torch.randn(1, 2, 3, 3)
nn.Upsample(scale_factor=2, mode='bilinear', align_corners=False) | torch.randn(1, 2, 3, 3)
nn.Upsample(scale_factor=2, mode='linear') | torch.randn(1, 2, 3)
nn.Upsample(size=5, mode='bicubic') | torch.randn(1, 2, 3, 3)
nn.Upsample(scale_factor=2, mode='trilinear') | torch.randn(1, 2, 2, 2, 2)
nn.ZeroPad2d(1) | torch.randn(1, 2, 3, 3)
nn.ConstantPad1d(1, 2.0) | torch.randn(1, 2, 3)
nn.ReflectionPad1d(1) | torch.randn(1, 2, 3)
nn.ReflectionPad2d((1, 0, 2, 1)) | torch.randn(1, 2, 3, 3)
nn.ReplicationPad2d(1) | torch.randn(1, 2, 3, 3)
nn.CircularPad2d(1) | torch.randn(1, 2, 3, 3)
nn.CosineSimilarity() | net(x2, torch.randn(2, 6))
nn.PairwiseDistance() | net(x2, torch.randn(2, 6))
nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)) | torch.randn(2, 6)
nn.utils.weight_norm(nn.Conv1d(4, 3, 2)) | torch.randn(2, 4, 5)
nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)) | torch.randn(2, 3, 6, 6)
nn.MSELoss() | net(x2, torch.randn(2, 6))
nn.L1Loss(reduction='sum') | net(x2, torch.randn(2, 6))
nn.SmoothL1Loss(beta=0.5) | net(x2, torch.randn(2, 6))
nn.HuberLoss(reduction='none') | net(x2, torch.randn(2, 6))
nn.CrossEntropyLoss() | net(x2, torch.tensor([1, 5]))
nn.CrossEntropyLoss(torch.rand(6), ignore_index=1) | net(x2, torch.tensor([1, 5]))
nn.CrossEntropyLoss(label_smoothing=0.1) | net(x2, torch.tensor([1, 5]))
nn.CrossEntropyLoss(torch.rand(6), label_smoothing=0.1) | net(x2, torch.randn(2, 6).softmax(1))
nn.CrossEntropyLoss() | net(torch.randn(2, 4, 3, requires_grad=True), torch.zeros(2, 3, dtype=torch.int64))
nn.NLLLoss(reduction='none') | net(x2, torch.tensor([1, 5]))
nn.NLLLoss2d() | net(torch.randn(2, 4, 3, 3, requires_grad=True), torch.zeros(2, 3, 3, dtype=torch.int64))
nn.BCELoss(weight=torch.rand(6)) | net(x2.sigmoid(), torch.rand(2, 6))
nn.BCEWithLogitsLoss(pos_weight=torch.rand(6)) | net(x2, torch.rand(2, 6))
nn.KLDivLoss(reduction='batchmean') | net(x2.log_softmax(1), torch.rand(2, 6))
nn.PoissonNLLLoss(full=True) | net(x2, torch.rand(2, 6) * 5)
nn.GaussianNLLLoss(full=True) | net(x2, torch.randn(2, 6), torch.rand(2, 6, requires_grad=True))
nn.CosineEmbeddingLoss(margin=0.1) | net(x2, torch.randn(2, 6), torch.tensor([1, -1]))
nn.TripletMarginLoss(swap=True) | net(x2, torch.randn(2, 6), torch.randn(2, 6))
nn.TripletMarginWithDistanceLoss() | net(x2, torch.randn(2, 6), torch.randn(2, 6))
nn.MarginRankingLoss(0.5) | net(x2, torch.randn(2, 6), torch.randn(2, 6).sign())
nn.HingeEmbeddingLoss() | net(x2, torch.randn(2, 6).sign())
nn.SoftMarginLoss() | net(x2, torch.randn(2, 6).sign())
nn.MultiMarginLoss(p=2) | net(x2, torch.tensor([1, 5]))
nn.MultiLabelMarginLoss() | net(x2, torch.tensor([[0, 2, -1, 0, 0, 0], [3, -1, 0, 0, 0, 0]]))
nn.MultiLabelSoftMarginLoss() | net(x2, torch.rand(2, 6))
nn.CTCLoss() | net(torch.randn(5, 2, 4, requires_grad=True).log_softmax(2), torch.tensor([[1, 2], [1, 3]]), (5, 5), (2, 2)) | torch.nn.functional.ctc_loss
"""  # noqa: E501
ROWS = [[*line.split(" | "), ""][:3] for line in LAYERS.strip().splitlines()]

BEGIN = """\
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
net = {layer}
x2, x3 = torch.randn(2, 6, requires_grad=True), torch.randn(3, 2, 8, requires_grad=True)
"""
RUN = """\
out = {call}
tensors = [t for o in (out if isinstance(out, tuple) else (out,)) for t in (o if isinstance(o, tuple) else (o,)) if t is not None]
loss = sum((t * t).sum() for t in tensors if t.requires_grad)
if isinstance(loss, torch.Tensor):
    loss.backward()
if list(net.parameters()):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    optimizer.step()
    optimizer.zero_grad()
"""  # noqa: E501


def call(row: list[str], change: str = "") -> str:
    """How the layer is called: a bare input becomes a leaf, and the layer gets a product of it, which it may write."""
    given = row[1]
    if given.startswith("net("):
        return given
    return f"net(({given}){change}.requires_grad_() * 1)" if "randn" in given else f"net({given})"


def observe(source: str) -> Trace:
    """The trace of a program."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trace_program(source)


def check(trace: Trace, mirrored: str = "") -> None:
    """Both engines agree on all that happened, and nothing but ``mirrored`` had no model."""
    assert trace.disagreements == ()
    assert trace.notes == ()
    unmodelled = {event.op: event.reason for event in trace.events if event.reason}
    assert set(unmodelled) <= set(mirrored.split()), unmodelled
    assert trace.agreement.agreed == trace.agreement.checked > 0


MODES = [(row, mode) for number, row in enumerate(ROWS) for mode in todays(("train", "eval"), of=2, begin=number)]


def named(part: list[str] | str) -> str:
    return part if isinstance(part, str) else f"{part[0]} of {part[1]}"


@pytest.mark.parametrize(("row", "mode"), MODES, ids=named)
def test_both_engines_agree_on_a_layer(row: list[str], mode: str) -> None:
    trace = observe(BEGIN.format(layer=row[0]) + f"net.{mode}()\n" + RUN.format(call=call(row)))
    assert trace.outcome.kind == "finished", trace.outcome
    check(trace, row[2])


#: What else a layer may meet: how the network is changed, and how the input is.
VARIANTS = {
    "double": ("net.double()", ".double()"),
    "strided": ("", ".mT.contiguous().mT"),
    "frozen": ("net.requires_grad_(False)", ""),
    "batch of one": ("net.eval()", "[:1]"),
    "no_grad": ("torch.set_grad_enabled(False)", ""),
}
VARIED = [
    row for row in ROWS if "randn" in row[1] and not row[1].startswith("net(") and "channels_last" not in "".join(row)
]


WITH_PARAMETERS = re.compile(r"Linear|Conv|Norm|RNN|LSTM|GRU|PReLU|Transformer|norm\(")
OTHERWISE = [
    (row, variant) for row in VARIED for variant in VARIANTS if variant != "frozen" or WITH_PARAMETERS.search(row[0])
]


@pytest.mark.parametrize(("row", "variant"), todays(OTHERWISE, of=8, kind=lambda part: part[1]), ids=named)
def test_both_engines_agree_on_a_layer_in_other_circumstances(row: list[str], variant: str) -> None:
    network, change = VARIANTS[variant]
    source = BEGIN.format(layer=row[0]) + network + "\n" + RUN.format(call=call(row, change))
    trace = observe(source + "torch.set_grad_enabled(True)\n")
    check(trace, row[2])


#: Programs around layers: initialisation, clipping, parametrisation, the fast paths of attention.
AROUND = {
    "init": """
w, b = torch.empty(4, 4, requires_grad=True), torch.empty(4)
for fill in (nn.init.uniform_, nn.init.normal_, nn.init.xavier_uniform_, nn.init.xavier_normal_, nn.init.kaiming_uniform_, nn.init.kaiming_normal_,
             nn.init.trunc_normal_, nn.init.zeros_, nn.init.ones_, nn.init.eye_):
    fill(w)
nn.init.constant_(b, 0.5)
(w @ b).sum().backward()
""",  # noqa: E501
    "clip_grad_norm_": """
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
net(torch.randn(3, 4)).pow(2).sum().backward()
total = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
nn.utils.clip_grad_value_(net.parameters(), 0.01)
torch.optim.AdamW(net.parameters()).step()
""",
    "parameters_to_vector": """
net = nn.Linear(3, 2)
flat = nn.utils.parameters_to_vector(net.parameters())
flat.sum().backward()
with torch.no_grad():
    nn.utils.vector_to_parameters(flat * 2, net.parameters())
net(torch.randn(2, 3)).sum().backward()
""",
    "functional": """
a = torch.randn(2, 6, requires_grad=True)
loss = F.gumbel_softmax(a, hard=True).sum() + F.normalize(a).sum() + F.glu(a).sum() + F.rrelu(a * 1, training=True, inplace=True).sum()
loss = loss + F.pad(a[None], (1, 2), mode="circular").sum() + F.interpolate(a[None], scale_factor=2, mode="linear").sum()
loss = loss + torch.einsum("ij,kj->ik", a, a).sum() + F.one_hot(torch.tensor([1, 2]), 6).mul(a).sum() + F.affine_grid(torch.randn(1, 2, 3), (1, 1, 2, 2)).sum()
loss.backward()
""",  # noqa: E501
    "shared weights": """
table = nn.Embedding(5, 4)
head = nn.Linear(4, 5, bias=False)
head.weight = table.weight
F.cross_entropy(head(table(torch.tensor([[0, 1, 2]]))).transpose(1, 2), torch.tensor([[1, 2, 3]])).backward()
""",
}
MIRRORED = {
    "init": "torch.eye torch.functional.eye",
    "functional": "torch.nn.functional.affine_grid torch.affine_grid_generator",
}


@pytest.mark.parametrize("name", AROUND)
def test_both_engines_agree_on_what_is_done_around_layers(name: str) -> None:
    trace = observe(
        "import torch\nfrom torch import nn\nimport torch.nn.functional as F\ntorch.manual_seed(0)\n" + AROUND[name]
    )
    assert trace.outcome.kind == "finished", trace.outcome
    check(trace, MIRRORED.get(name, ""))


@pytest.mark.parametrize("norm", ["spectral_norm", "orthogonal"])
def test_parametrizations_that_iterate_are_followed_in_their_parts(norm: str) -> None:
    trace = observe(
        BEGIN.format(layer=f"nn.utils.parametrizations.{norm}(nn.Linear(6, 3))") + RUN.format(call="net(x2)")
    )
    assert trace.outcome.kind == "finished"
    assert trace.disagreements == ()
    assert trace.notes == ()


FAST = """\
import torch
from torch import nn
torch.manual_seed(0)
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
x, padding = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False, False, False]])
with torch.no_grad():
    seen = encoder(x, src_key_padding_mask=padding), attention(x, x, x)[0]
"""


def test_the_fast_path_of_attention_is_taken_under_observation_too() -> None:
    alone: dict[str, Any] = {}
    watched: dict[str, Any] = {"__name__": "__main__"}
    asked = torch.overrides.has_torch_function
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(FAST, alone)
        trace = trace_program(FAST, namespace=watched)
    assert trace.disagreements == ()
    assert trace.notes == ()
    for one, other in zip(alone["seen"], watched["seen"], strict=True):
        assert torch.equal(one, other)
    assert not alone["seen"][0][0, 2].any()  # only the fast path puts zeros where the input is padding
    assert torch.overrides.has_torch_function is asked
