"""Exotic input: what the shadow has no model for is mirrored with a reason; the program never
notices, and the recording goes on.
"""

from __future__ import annotations

import linecache
import warnings
from typing import Any

import pytest
import torch

from pitfall_lab.observe import regions
from pitfall_lab.trace import Trace
from pitfall_lab.verify import trace_program

START = """\
import torch
torch.manual_seed(0)
x = torch.ones(3, 2, requires_grad=True)
y = torch.arange(6.0).reshape(3, 2)
"""
#: For each kind of input: a program that ends with ``out``, and words of the reason that an event of its trace
#: must give ("": all is modelled).
PROGRAMS: dict[str, tuple[str, str]] = {
    "coo": (
        """\
s=y.to_sparse()
z=s+s
out=z.to_dense()
""",
        "layout sparse_coo",
    ),
    "coo grad": (
        """\
s=x.to_sparse()
out=torch.sparse.sum(s)
out.backward()
g=x.grad
""",
        "layout sparse_coo",
    ),
    "csr": (
        """\
s=y.to_sparse_csr()
out=s@torch.ones(2,1)
""",
        "layout sparse_csr",
    ),
    "embedding sparse": (
        """\
e=torch.nn.Embedding(4,2,sparse=True)
opt=torch.optim.SGD(e.parameters(),lr=.1)
for _ in range(2):
    opt.zero_grad()
    e(torch.tensor([1,1])).sum().backward()
    opt.step()
out=e.weight.grad.to_dense()
""",
        "layout sparse_coo",
    ),
    "quant": (
        """\
q=torch.quantize_per_tensor(y,0.1,0,torch.qint8)
out=q.dequantize()
r=q.int_repr()
""",
        "quantized",
    ),
    "nested": (
        """\
n=torch.nested.nested_tensor([torch.ones(2),torch.ones(3)])
m=n+1
out=m.unbind()[0]
""",
        "nested",
    ),
    "nested jagged": (
        """\
n=torch.nested.nested_tensor([torch.ones(2),torch.ones(3)],layout=torch.jagged)
m=n*2
out=m.unbind()[0]
""",
        "nested",
    ),
    "nested jagged backward": (
        """\
n=torch.nested.nested_tensor([torch.ones(2,2),torch.ones(3,2)],layout=torch.jagged,requires_grad=True)
l=torch.nn.Linear(2,2)
o=torch.nn.functional.relu(l(n)).sin()+n
o.values().sum().backward()
n.grad.values()
(l.weight*2).sum().backward()
out=l.weight.grad
""",
        "nested",
    ),
    "nested strided backward": (
        """\
n=torch.nested.nested_tensor([torch.ones(2),torch.ones(3)],requires_grad=True)
(n*3).to_padded_tensor(0.).sum().backward()
out=n.grad.unbind()[0]
""",
        "nested",
    ),
    "masked": (
        """\
from torch.masked import masked_tensor
a=masked_tensor(torch.arange(4.),torch.tensor([True,False,True,True]),requires_grad=True)
(a*2).exp().sum().backward()
out=a.grad.to_tensor(0.)
""",
        "class MaskedTensor",
    ),
    "gradcheck batched": (
        """\
d=torch.ones(3,dtype=torch.double,requires_grad=True)
torch.autograd.gradcheck(lambda a:(a*a).sum(),(d,),check_batched_grad=True)
(d*3).sum().backward()
out=d.grad
""",
        "function transform has wrapped",
    ),
    "swap": (
        """\
a,b=torch.ones(3),torch.zeros(2,requires_grad=True)
torch.utils.swap_tensors(a,b)
(a*2).sum().backward()
out=[a.grad,b+1]
""",
        "swap_tensors",
    ),
    "swap module": (
        """\
torch.__future__.set_swap_module_params_on_conversion(True)
try:
    m=torch.nn.Linear(2,1)
    m(y).sum().backward()
    m.double()
    m(y.double()).sum().backward()
    out=m.weight.grad
finally:
    torch.__future__.set_swap_module_params_on_conversion(False)
""",
        "swap_tensors",
    ),
    "swap poisoned": (
        """\
w=x*2
torch.utils.swap_tensors(x,torch.nn.Parameter(torch.ones(2)).detach().requires_grad_())
try:
    w.sum().backward()
except RuntimeError as e:
    out=str(e)
""",
        "came from the program's own code",
    ),
    "mkldnn": (
        """\
m=y.to_mkldnn()
out=(m+m).to_dense()
""",
        "layout mkldnn",
    ),
    "meta": (
        """\
m=torch.empty(10**6,10**6,device='meta')
out=(m@m).shape[0]
k=m+1
""",
        "device meta",
    ),
    "meta+cpu": (
        """\
m=torch.empty(3,2,device='meta')
try:
    m+y
except RuntimeError as e:
    out=str(e)
""",
        "different devices",
    ),
    "meta scalar": (
        """\
m=torch.empty(3,2,device='meta')
out=(m+torch.tensor(2.)).shape[0]
m.add_(1)
m[0]
m.sum()
""",
        "different devices",
    ),
    "subclass tf": (
        """\
class T(torch.Tensor):
    @classmethod
    def __torch_function__(cls,f,t,a=(),k=None):
        return super().__torch_function__(f,t,a,k or {})
t=y.as_subclass(T)
z=t*2+1
out=z
""",
        "a tensor of class T, which may handle operations itself",
    ),
    "subclass td": (
        """\
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
class W(torch.Tensor):
    @staticmethod
    def __new__(cls,e):
        return torch.Tensor._make_wrapper_subclass(cls,e.shape,dtype=e.dtype)
    def __init__(self,e):
        self.e=e
    @classmethod
    def __torch_dispatch__(cls,f,t,a=(),k=None):
        u=lambda v:v.e if isinstance(v,W) else v
        r=f(*tree_map(u,a),**tree_map(u,k or {}))
        return W(r) if isinstance(r,torch.Tensor) else r
w=W(y)
z=w*2
out=z.e
""",
        "class W",
    ),
    "dispatch mode": (
        """\
from torch.utils._python_dispatch import TorchDispatchMode
seen=[]
class M(TorchDispatchMode):
    def __torch_dispatch__(self,f,t,a=(),k=None):
        seen.append(str(f))
        return f(*a,**(k or {}))
with M():
    z=(x*2).sigmoid().sum()
z.backward()
out=seen
""",
        "dispatch mode",
    ),
    "dispatch mode backward": (
        """\
from torch.utils._python_dispatch import TorchDispatchMode
seen=[]
class M(TorchDispatchMode):
    def __torch_dispatch__(self,f,t,a=(),k=None):
        seen.append(str(f))
        r=f(*a,**(k or {}))
        return r*2 if "mul" in str(f) else r
with M():
    z=(x*2).sigmoid().sum()
    z.backward()
g=x.grad+0
x.grad.zero_()
out=[str(seen),g]
""",
        "dispatch mode",
    ),
    "fake": (
        """\
from torch._subclasses import FakeTensorMode
with FakeTensorMode():
    f=torch.ones(3,3)
    g=f@f
out=g.shape[0]
""",
        "class FakeTensor",
    ),
    "cuda": (
        """\
try:
    torch.ones(2,device='cuda')
except Exception as e:
    out=type(e).__name__
try:
    y.to('cuda')
except Exception as e:
    out+=type(e).__name__
""",
        "device cuda",
    ),
    "strange": (
        """\
try:
    torch.ones(2,device='quantum')
except RuntimeError as e:
    out=str(e)[:40]
""",
        "device quantum",
    ),
    "zero": (
        """\
e=torch.empty(0,3,requires_grad=True)
e.sum().backward()
out=e.grad
f=torch.cat([e.detach(),torch.ones(1,3)])
g=f[1:]*2
e.max(1)
""",
        "",
    ),
    "0dim": (
        """\
t=torch.tensor(2.,requires_grad=True)
(t**3).backward()
out=t.grad
s=t.detach().numpy()
t.detach().reshape(1)[0]
""",
        "",
    ),
    "huge": (
        """\
h=torch.empty(10**9)
v=h[5:7]
v.fill_(1.)
out=v.sum()
u=torch.zeros(1).expand(10**12)
u.sum
""",
        "",
    ),
    "script": (
        """\
@torch.jit.script
def f(v):
    return v*2+1
out=f(x)
out.sum().backward()
""",
        "",
    ),
    "script module": (
        """\
m=torch.jit.script(torch.nn.Linear(2,1))
out=m(y)
out.sum().backward()
""",
        "",
    ),
    "trace": (
        """\
t=torch.jit.trace(lambda v:v*2,y)
out=t(y)
out=out+1
""",
        "tracer",
    ),
    "export": (
        """\
p=torch.export.export(torch.nn.Linear(2,1),(y,))
out=p.module()(y)
""",
        "exporter",
    ),
    "func.grad": (
        """\
out=torch.func.grad(lambda v:(v**2).sum())(y)
""",
        "function transform",
    ),
    "vmap": (
        """\
out=torch.func.vmap(lambda v:v.sum())(y)
""",
        "function transform",
    ),
    "vmap grad": (
        """\
w=torch.ones(2)
out=torch.func.vmap(torch.func.grad(lambda w,v:(w*v).sum()),in_dims=(None,0))(w,y)
""",
        "function transform",
    ),
    "jvp": (
        """\
pair=torch.func.jvp(torch.sin,(y,),(y,))
out=pair[0]
""",
        "function transform",
    ),
    "vjp": (
        """\
out,f=torch.func.vjp(torch.sin,y)
(g,)=f(torch.ones(3,2))
""",
        "function transform",
    ),
    "jacrev": (
        """\
out=torch.func.jacrev(torch.sin)(y)
""",
        "function transform",
    ),
    "jacfwd": (
        """\
out=torch.func.jacfwd(torch.sin)(y)
""",
        "function transform",
    ),
    "hessian": (
        """\
out=torch.func.hessian(lambda v:(v**3).sum())(y)
""",
        "function transform",
    ),
    "functional_call": (
        """\
net=torch.nn.Linear(2,1)
out=torch.func.functional_call(net,{k:v*2 for k,v in net.named_parameters()},(y,))
out.sum().backward()
""",
        "",
    ),
    "stack_module": (
        """\
nets=[torch.nn.Linear(2,1) for _ in range(2)]
p,b=torch.func.stack_module_state(nets)
out=torch.func.vmap(lambda p,b,v:torch.func.functional_call(nets[0],(p,b),(v,)),in_dims=(0,0,None))(p,b,y)
""",
        "function transform",
    ),
    "vmap requires grad": (
        """\
out=torch.func.vmap(lambda v:(v**2).sum())(x)
out.sum().backward()
g=x.grad
""",
        "function transform",
    ),
    "fx": (
        """\
m=torch.fx.symbolic_trace(torch.nn.Linear(2,1))
out=m(y)
""",
        "tracer",
    ),
    "fwAD": (
        """\
import torch.autograd.forward_ad as fa
with fa.dual_level():
    d=fa.make_dual(y,torch.ones(3,2))
    o=d*d
    out=fa.unpack_dual(o).tangent
""",
        "",
    ),
    "dataloader0": (
        """\
from torch.utils.data import DataLoader,TensorDataset
out=[b.clone() for b,_ in DataLoader(TensorDataset(y,y),batch_size=2,shuffle=True)]
""",
        "",
    ),
    "dataloader2": (
        """\
from torch.utils.data import DataLoader,TensorDataset
out=[b.sum().item() for (b,) in DataLoader(TensorDataset(y),batch_size=2,num_workers=2,timeout=60)]
""",
        "",
    ),
    "mp": (
        """\
import torch.multiprocessing as mp
y.share_memory_()
out=y+1
""",
        "",
    ),
    "threads": (
        """\
import threading
res=[]
def work():
    res.append((x*2).sum())
ts=[threading.Thread(target=work) for _ in range(2)]
[t.start() for t in ts]
[t.join() for t in ts]
out=res[0]+res[1]
out.backward()
""",
        "",
    ),
    "threads backward": (
        """\
import threading
y=x.exp()
t=threading.Thread(target=lambda: (x*2).sum().backward())
t.start(); t.join()
g=x.grad+0
x.grad.zero_()
t=threading.Thread(target=lambda: y.sum().backward())
t.start(); t.join()
try:
    y.sum().backward()
except RuntimeError as e:
    out=[str(e),g,x.grad]
""",
        "",
    ),
    "threads while": (
        """\
import threading
go=threading.Event()
def work():
    while not go.is_set():
        with torch.no_grad():
            y.add_(0)
t=threading.Thread(target=work)
t.start()
for _ in range(50):
    z=(x*2).sum()
    z.backward()
go.set()
t.join()
out=x.grad
""",
        "",
    ),
    "executor": (
        """\
import asyncio
async def main():
    await asyncio.get_running_loop().run_in_executor(None,lambda: (x*5).sum().backward())
asyncio.run(main())
out=x.grad+0
""",
        "",
    ),
    "pickle": (
        """\
import pickle
out=pickle.loads(pickle.dumps(y))
out+1
""",
        "",
    ),
    "save": (
        """\
import io
b=io.BytesIO()
torch.save({'y':y},b)
b.seek(0)
out=torch.load(b,weights_only=True)['y']
out=out+1
""",
        "",
    ),
    "state_dict": (
        """\
net=torch.nn.Linear(2,1)
sd={k:v.clone() for k,v in net.state_dict().items()}
net.load_state_dict(sd)
net.load_state_dict(sd,assign=True)
out=net(y)
""",
        "",
    ),
    "deepcopy": (
        """\
import copy
net=torch.nn.Linear(2,1)
n2=copy.deepcopy(net)
out=n2(y)
t=copy.deepcopy(y)
c=copy.copy(y)
""",
        "",
    ),
    "distributions": (
        """\
d=torch.distributions.Normal(torch.zeros(2,requires_grad=True),torch.ones(2))
torch.manual_seed(0)
s=d.rsample()
out=d.log_prob(s)
k=torch.distributions.kl_divergence(d,torch.distributions.Normal(0.,1.))
c=torch.distributions.Categorical(logits=y)
c.log_prob(c.sample())
b=torch.distributions.Bernoulli(0.3)
b.sample((3,))
""",
        "",
    ),
    "fft": (
        """\
f=torch.fft.fft(y)
out=torch.fft.ifft(f).real
r=torch.fft.rfft(x)
r.abs().sum().backward()
""",
        "no entry",
    ),
    "compile eager": (
        """\
c=torch.compile(lambda v:v.sin()*2,backend='eager')
out=c(x)
out.sum().backward()
g=x.grad
""",
        "compiled function",
    ),
    "compile aot": (
        """\
c=torch.compile(lambda v:v.sin()*2,backend='aot_eager')
out=c(x)
out.sum().backward()
g=x.grad
""",
        "compiled function",
    ),
    "compile inplace": (
        """\
c=torch.compile(lambda v:v.add_(1),backend='aot_eager')
z=y*2
z+1
c(z)
out=z+1
""",
        "compiled function",
    ),
    "compile module train": (
        """\
net=torch.compile(torch.nn.Sequential(torch.nn.Linear(2,2),torch.nn.ReLU()),backend='aot_eager')
opt=torch.optim.SGD(net.parameters(),lr=.1)
for _ in range(2):
    opt.zero_grad()
    net(y).sum().backward()
    opt.step()
out=net(y)
""",
        "compiled function",
    ),
    "checkpoint": (
        """\
from torch.utils.checkpoint import checkpoint
out=checkpoint(lambda v:v.sin(),x,use_reentrant=False)
out.sum().backward()
""",
        "",
    ),
    "dlpack": (
        """\
out=torch.from_dlpack(y)
out.add_(1)
z=y+1
""",
        "",
    ),
    "frombuffer": (
        """\
b=bytearray(16)
t=torch.frombuffer(b,dtype=torch.float32)
b[0]=1
out=t+1
""",
        "",
    ),
    "storage": (
        """\
s=y.untyped_storage()
t=torch.tensor([],dtype=torch.float32).set_(s,0,(2,2),(2,1))
t.add_(1)
out=y+1
""",
        "",
    ),
    "bits": (
        """\
f=y.to(torch.float8_e4m3fn)
out=f.to(torch.float32)
""",
        "",
    ),
    "uint16": (
        """\
u=torch.tensor([1,2],dtype=torch.uint16)
out=u.to(torch.int32)+1
""",
        "",
    ),
    "default device meta": (
        """\
torch.set_default_device('meta')
z=torch.ones(2)+1
torch.set_default_device('cpu')
out=z.shape[0]
torch.set_default_device(None)
""",
        "",
    ),
}


def value(x: Any) -> Any:
    """A result as plain data."""
    if isinstance(x, torch.Tensor):
        if x.is_meta or type(x) not in (torch.Tensor, torch.nn.Parameter):
            return tuple(x.shape)
        return x.detach().to(torch.float64).tolist()
    if isinstance(x, list | tuple):
        return [value(item) for item in x]
    return x


def plainly(source: str) -> dict[str, Any]:
    """The names that a program leaves when nobody watches."""
    names: dict[str, Any] = {"__name__": "__main__"}
    linecache.cache["<plainly>"] = (
        len(source),
        None,
        source.splitlines(keepends=True),
        "<plainly>",
    )  # torch.jit.script reads it
    exec(compile(source, "<plainly>", "exec"), names)
    return names


def watched(source: str) -> tuple[dict[str, Any], Trace]:
    """The names that it leaves under observation, and the trace."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return names, trace_program(source, namespace=names)


@pytest.fixture(autouse=True)
def quiet_and_clean():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # prototypes and deprecations of torch's
        yield
    torch._dynamo.reset()


# What was not seen: the trace says so.
READ_AGAIN = "Tensors that it may have changed are read again from torch."
NOTES = {
    kind: [f"Another thread used torch, first {op} (line {line}): that was not recorded. {READ_AGAIN}"]
    for kind, op, line in (
        ("threads", "torch.Tensor.mul", 8),
        ("threads while", "torch.Tensor.add_", 10),
        ("executor", "torch.Tensor.mul", 7),
    )
}
NOTES["dataloader2"] = ["The program started another process (line 6): what it does with torch there is not recorded."]
NOTES["threads backward"] = [
    f"Another thread used torch, first torch.Tensor.{op} (line {line}): that was not recorded. {READ_AGAIN}"
    for op, line in (("mul", 7), ("sum", 11))
]


@pytest.mark.parametrize("kind", PROGRAMS)
def test_the_program_gives_what_it_gives_unobserved_and_its_trace_says_why_a_step_was_mirrored(kind: str):
    source, words = START + PROGRAMS[kind][0], PROGRAMS[kind][1]
    alone = plainly(source)
    torch._dynamo.reset()
    names, trace = watched(source)
    assert trace.outcome.kind == "finished", trace.outcome
    assert trace.disagreements == ()
    # What ran as one piece, and what was compiled, is noted as well (tests/check/test_regions.py).
    said = [note.en for note in trace.notes if "so no rule looked at what it does" not in note.en]
    assert said == NOTES.get(kind, [])
    assert value(names["out"]) == value(alone["out"])
    reasons = [event.reason for event in trace.events if event.reason]
    assert any(words in reason for reason in reasons) if words else True, reasons
    assert Trace.from_json(trace.to_json()) == trace


REGIONS = [
    "func.grad",
    "vmap",
    "vmap grad",
    "jvp",
    "jacrev",
    "jacfwd",
    "stack_module",
    "compile eager",
    "compile aot",
    "trace",
    "fx",
    "export",
]


@pytest.mark.parametrize("kind", REGIONS)
def test_a_function_that_torch_runs_as_one_thing_is_one_step_with_its_operands_and_results(kind: str):
    names, trace = watched(START + PROGRAMS[kind][0])
    assert [event.error for event in trace.events if event.error] == []
    steps = [
        event
        for event in trace.events
        if event.op.startswith(("torch.func.", "torch.compile", "torch.jit.", "torch.fx.", "torch.export."))
    ]
    [step, *more] = steps
    assert [event.op for event in more] in ([], ["torch.jit.trace"], ["torch.export.export"])
    assert step.span is not None
    assert step.by == "observed"
    assert step.operands or kind == "fx"
    if isinstance(names["out"], torch.Tensor) and kind not in ("trace", "fx", "export"):
        assert step.results


def test_a_result_that_is_used_at_once_is_the_result_of_the_step_that_made_it():
    trace = trace_program(START + "z = torch.func.vmap(lambda v: v * 2)(y).sum()\n")
    [step] = [event for event in trace.events if event.op == "torch.func.vmap"]
    [use] = [event for event in trace.events if event.op == "torch.Tensor.sum"]
    assert step.results == (use.operands[0].label,)


def test_a_write_inside_a_compiled_function_is_counted_and_forecast_no_later_than_its_backward():
    source = START + (
        "c = torch.compile(lambda v: v.mul_(2), backend='aot_eager')\n"
        "h = x.exp()\n"
        "with torch.no_grad():\n"
        "    c(h)\n"
        "h.sum().backward()\n"
    )
    trace = trace_program(source)
    assert trace.disagreements == ()
    assert trace.outcome.failure is not None
    assert trace.outcome.failure.kind == "saved-tensor-modified"


def test_an_error_inside_a_transformed_function_is_told_at_the_line_that_called_it():
    trace = trace_program(
        START + "def f(v):\n    raise ValueError('mine') if v.sum() is not None else 0\ntorch.func.vmap(f)(y)\n"
    )
    assert trace.outcome.failure is not None
    assert trace.outcome.failure.message == "mine"
    assert trace.disagreements == ()


def test_the_switches_that_tell_of_regions_still_exist():
    assert regions.possible() in (True, False)
    import torch._dynamo.convert_frame as compiler

    assert isinstance(compiler.FRAME_COUNTER, int)


#: Calls that deterministic algorithms change on the CPU: declined. The last two are not, and agree.
DETERMINISTIC = {
    "torch.ones(2).resize_(5)": True,
    "F.max_pool1d(y.view(1, 2, 3), 2)": True,
    "x.max(0)[0].sum().backward()": True,
    "F.one_hot(torch.tensor([1, 0]))": True,
    "x.sort()[0].sum().backward()": True,
    "torch.trace(x).backward()": True,
    "torch.copysign(x, y).sum().backward()": True,
    "(x * x).softmax(1)[torch.tensor([0, 0])].sum().backward()": False,
    "torch.nn.functional.mse_loss(x @ x.t(), y @ y.t()).backward()": False,
}


@pytest.mark.parametrize("limit", [4096, -1])
@pytest.mark.parametrize("line", DETERMINISTIC)
def test_what_deterministic_algorithms_change_is_declined(line: str, limit: int) -> None:
    source = (
        f"{START}import torch.nn.functional as F\n"
        f"{line}\n"
        "x.grad = None\n"
        "torch.use_deterministic_algorithms(True)\n"
        f"out = {line}\n"
    )
    try:
        trace = trace_program(source, value_limit=limit)
    finally:
        torch.use_deterministic_algorithms(mode=False)
    reasons = [event.reason for event in trace.events if "another algorithm" in event.reason]
    assert trace.disagreements == ()
    assert trace.notes == ()
    assert bool(reasons) == DETERMINISTIC[line]
