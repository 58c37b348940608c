"""Programs on which the engines once differed, made small: what was learnt from each stays true."""

# Each entry: what it shows, and the program. All run stand-alone and in lockstep.
FOUND: dict[str, str] = {
    "deepcopy makes a leaf that was written once, on new memory": """
import copy
t1 = torch.tensor([-2.0, 1.0, 2.0], requires_grad=True)
t2 = copy.deepcopy(t1)
""",
    "deepcopy refuses what has a history": """
import copy
t1 = torch.tensor([3.0, -0.5, 0.5], requires_grad=True)
t3 = torch.cat([t1, t1])
t4 = copy.deepcopy(t3)
""",
    "is_leaf of a view whose history is forbidden raises": """
t1 = torch.tensor([-0.5, 0.5, -0.75], requires_grad=True) * 1
with torch.no_grad():
    t3 = t1.tensor_split(2, -1)[0]
t1.view(-1).add_(2)
opt1 = torch.optim.Adam([t3], lr=0.1, fused=True)
""",
    "set_ does not change the type": """
t2 = torch.tensor([1.0, 2.0])
t2.set_(t2 > 1)
""",
    "torch.Tensor(t) is a view with a history": """
t1 = torch.tensor([-1.5, 1.5, -2.0], requires_grad=True)
t2 = torch.Tensor(t1)
t2.sum().backward()
""",
    "abs of bool": """
t1 = torch.tensor([3.0, -0.5, 0.5]) > 0
t2 = t1.abs()
""",
    "autograd forbids before the shapes are looked at": """
t4 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t4[t4 > 5] = t4
""",
    "an index write refuses its own memory before it looks at shapes": """
t8 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]).t()
t8[torch.tensor([[0, 1], [1, 0]])] = t8
""",
    "memory exchanged under a history gives a gradient of the wrong shape": """
t1 = torch.tensor([3.0, -0.5, 0.5], requires_grad=True)
t6 = t1 * 2
t6.data = torch.tensor(1.0)
t6.sum().backward()
""",
    "a complex number is no element of a real tensor": """
t2 = torch.zeros(2, 2, dtype=torch.float64)
t2[..., 0:1] = 2j
""",
    "a captured gradient has passed the hooks": """
t4 = torch.tensor([4.0, -1.0, 3.0], requires_grad=True) * 1
t4.register_hook(lambda g: g * 2)
g1 = torch.autograd.grad(t4.sum(), t4)[0]
""",
    "inputs= retains the gradient of a computed tensor for later passes as well": """
t1 = torch.tensor([1.25, -1.5, 1.5], requires_grad=True)
t2 = -t1
t2.sum().backward(inputs=[t2])
g1 = torch.autograd.grad(t2.sum(), t2, materialize_grads=True)[0]
""",
    "retain_grad follows a view whose history is made anew": """
t2 = torch.tensor([1.25, -1.5, 1.5], requires_grad=True) * 1
t3 = t2[0]
t3.retain_grad()
t2.detach().add_(0.5)
t3.sum().backward()
""",
    "requires_grad = True of a computed tensor": """
t1 = torch.tensor([1.25, -1.5, 1.5], requires_grad=True) * 1
t1.requires_grad = True
""",
    "a number beside a tensor with a dimension of size 1 changes the layout": """
t1 = torch.tensor([[[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]]).as_strided((1, 2, 3), (3, 3, 1))
t2 = t1 * 2
t3 = t1 * t1
t4 = t1 > 0
""",
    "index_add refuses a source in its own memory": """
t3 = torch.tensor([-1.0])
t3.index_add_(0, torch.tensor([0]), t3.narrow(0, 0, 1))
""",
    "a weight of a loss has no derivative": """
t2 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t3 = F.binary_cross_entropy(torch.sigmoid(t2), torch.ones(2, 3), weight=t2[0])
t4 = F.cross_entropy(t2, torch.tensor([1, 0]), weight=t2[0])
t5 = F.multi_margin_loss(t2, torch.tensor([1, 0]), weight=t2[0])
""",
    "no_grad inside inference_mode is still inference": """
with torch.inference_mode():
    t1 = torch.ones(3)
    with torch.no_grad():
        t1.mul_(2)
        t2 = t1 + 1
""",
    "of several indices out of range the first element's is named": """
t6 = torch.tensor([[3.0]])
t7 = t6[[0, 1], [1, 0]]
""",
    "an index into nothing": """
t5 = torch.zeros(0, 3)
t5[[-1]] *= 0.5
""",
    "log_softmax of one NaN": """
t5 = torch.tensor(-1.0).log().log_softmax(0)
""",
    "a bool is no subtrahend": """
t1 = torch.tensor([1.0])
t2 = True - t1
t3 = t1 - True
""",
    "sort keeps the layout": """
t6 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]).t()[None]
t9 = t6.sort(2)[0]
""",
    "a view's history is looked at before its shape": """
t6 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True) * 1
with torch.no_grad():
    t8 = t6.as_strided((2, 2), (1, 1))
t6.sub_(t6)
t13 = t8.view(-1)
""",
    "out= refuses gradients before anything else": """
t1 = torch.tensor([-2.0, 1.0, 2.0], requires_grad=True)
t6 = torch.ones(2, 3) * t1
torch.add(t6, t1[:2], out=t6)
""",
    "the gradient of nothing is not added in place": """
t1 = torch.tensor([], dtype=torch.float32, requires_grad=True)
(t1.sum() + t1.sum()).backward()
""",
    "how often torch counts inside an operation on inference tensors is not modelled": """
with torch.inference_mode():
    t5 = torch.ones(3)
t9 = t5.sum()
t10 = t5.abs() + t5.double()
""",
    "a leaf made in inference mode": """
with torch.inference_mode():
    t1 = torch.tensor([1.5, -2.0, 1.0], requires_grad=True)
t1.copy_(t1)
t2 = t1.mean()
""",
    "a gradient that may be a view of another one gets no history": """
t1 = torch.tensor([1.5, -2.0, 1.0], requires_grad=True)
g1 = torch.autograd.grad(t1.sum(), t1)[0]
g1 += t1
g1.detach_()
""",
    "an array met in inference mode": """
import numpy as np
with torch.inference_mode():
    t1 = torch.from_numpy(np.arange(6.0))
    t2 = torch.as_tensor(np.ones(3))
with torch.no_grad():
    t1.mul_(2)
""",
    "t_ refuses three dimensions": """
t1 = torch.zeros(2, 1, 2)
t1.t_()
""",
    "a gradient summed over a stretched dimension is laid out anew": """
t1 = torch.tensor([[1.25], [-1.5], [1.5]], requires_grad=True)
(torch.ones(2, 3).t() * t1).sum().backward()
""",
    "rows of one number have a spread that is all rounding": """
t1 = torch.full((6, 3), 0.7310586)
t2 = F.batch_norm(t1, None, None, training=True)
t3 = F.layer_norm(t1 * 1e20, (3,))
t4 = F.group_norm(t1, 1)
""",
    "a write without a model gives the hidden base of a row's linear layer a history": """
t1 = torch.tensor([-0.75, 0.125, 0.75], requires_grad=True)
t2 = F.linear(t1, torch.ones(2, 3), torch.ones(2))
t2[True] = 1
t2.view(-1).add_(2)
""",
    "a copy brings its gradient along": """
import copy
t1 = torch.tensor([-0.75, 0.125, 0.75], requires_grad=True)
t1.sum().backward()
t2 = copy.deepcopy(t1)
t2.sum().backward()
""",
    "squeeze_ and its like leave the hook of retain_grad behind": """
t1 = torch.tensor([[0.5, -1.0, 2.0]], requires_grad=True).exp()
t1.sum().backward(inputs=[t1])
t1.squeeze_()
t1.sub_(1)
""",
    "a backward that nobody modelled fails after it has filled a leaf": """
t1 = torch.tensor([0.125, 0.75, 0.25], requires_grad=True)
t2 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t3 = t1.norm()
t3.masked_scatter_(t3 > 0, t1)
(t3 * t2 + 1).as_strided((2,), (1,)).sum().backward(create_graph=True)
t4 = t2.grad
""",
    "a view of a gradient from autograd.grad": """
t1 = torch.tensor([0.0, 4.0, -1.0], requires_grad=True)
t2 = torch.autograd.grad(t1.sum(), t1)[0].T
t2.mul_(t1)
""",
    "rms_norm looks at its weight first": """
t1 = F.rms_norm(torch.ones(2, 3), (3,), torch.ones(2))
""",
    "the median of a NaN": """
t1 = torch.tensor([0.5, -1.0, 2.0]).log().median()
t2 = torch.tensor([[0.5, -1.0, 2.0], [0.5, 1.0, 2.0]]).log().median(1)
""",
    "unused gradients are zeros laid out like the tensor": """
t1 = torch.ones(2, 3, requires_grad=True)
t2 = t1.t() * 1
t3 = torch.autograd.grad(t1.sum(), t2, materialize_grads=True)[0]
""",
    "mse_loss leaves room behind its result": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True)
t2 = F.mse_loss(t1, torch.tensor([1.0, 2.0]))
t2[True] = 2
t3 = t2.detach().clone()
""",
    "a tensor can be channels_last by its sizes of 1": """
t1 = ~torch.tensor([True, False, True, True, True, True]).as_strided((1, 3, 1, 2), (3, 1, 6, 3))
t2 = -torch.arange(6.0).as_strided((1, 3, 1, 2), (3, 1, 6, 3))
""",
    "a composite whose part has its own name": """
t1 = torch.tensor(1.0)
t2 = t1.unflatten(0, (1, -1))
""",
    "running statistics have no derivative": """
t1 = torch.ones(2, 4, 6, requires_grad=True)
t2 = torch.ones(4, requires_grad=True)
t3 = F.batch_norm(t1, t2, t2, t2)
t4 = F.instance_norm(t1, t2, t2 * 2, t2, None)
""",
    "no gradient is implicit for a complex number": """
t1 = torch.tensor([1.25, -1.5], requires_grad=True)
t2 = t1 + 2j
t3 = torch.autograd.grad((t2 * t1).sum(), t2)[0]
""",
    "whole numbers get a history by accident": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True)
t2 = torch.tensor([1, 2])
t2.fill_(t1.sum())
t3 = t2 + 1
""",
    "memory of another type makes a new node that accumulates": """
t1 = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
t2 = t1.as_strided((2, 2), (1, 1))
t1.data = torch.tensor(0.5)
(t1 * torch.ones(2, 2)).sum().backward()
""",
    "an index write looks at a slice as it is written": """
t1 = torch.tensor([], requires_grad=True) * 1
t1[2:] = 0.5
t2 = torch.tensor([1.0, 2.0], requires_grad=True) * 1
t2[-2:] = 0.5
t3 = torch.ones(3, 1)
t3[0, 1] *= 2
t3[[1, 5], 1:] += 1
t3[[0, 1], [1, 0]] = torch.ones(1, 2, 3)
t4 = torch.zeros(1, 6)
t4[1:2] = torch.ones(6, requires_grad=True)
""",
    "the spread of a transposed tensor keeps its layout in backward": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
(t1 * 0.3).t().asin().var(0).sum().backward()
""",
    "a gradient summed down is no view": """
t1 = torch.tensor([[4.0], [-1.0], [3.0]], requires_grad=True)
(t1 * t1.reshape(-1)).sum().backward()
t2 = torch.ones(2, 4, 4, 6, requires_grad=True)
torch.autograd.backward([F.max_pool2d(t2, 2).sum(), F.max_pool2d(t2, 2).squeeze().sum()])
t3 = torch.tensor([[1.5, 2.0, 0.5]], requires_grad=True)
t3.cross(t3, 1).sum().backward()
""",
    "softmax of a number whose result was overwritten": """
t1 = torch.tensor(0.5, requires_grad=True)
t2 = t1.softmax(0)
t2.data.mul_(-1.5)
t2.backward()
""",
    "an operation in place asks autograd before it looks at its arguments": """
t1 = torch.tensor([0.75, 0.25], requires_grad=True)
t1.scatter_(2, torch.zeros(2, dtype=torch.long), 0.5)
t1.masked_fill_(torch.tensor([1, 0]), 2.0)
t1[t1 > 0] = 2j
t1.detach().masked_fill_(torch.tensor([1, 0]), 2.0)
""",
    "a squeeze that does nothing hands its gradient on": """
t1 = torch.tensor([3.0, -0.5, 0.5], requires_grad=True)
t1.squeeze(0).backward(gradient=t1.detach())
""",
    "a root that is not run runs its hooks": """
t1 = torch.tensor([3.0], requires_grad=True)
t2 = torch.tensor([1.0, 2.0], requires_grad=True).sum()
t2.retain_grad()
t3 = torch.autograd.grad(t2, t1)
""",
    "retain_grad with create_graph keeps the history": """
t1 = torch.tensor([-0.75, 0.125, 0.75], requires_grad=True)
t2 = t1.sum() * t1
t2.retain_grad()
t3 = torch.autograd.grad(t2.pow(3).sum(), t2, create_graph=True)[0]
t1.register_post_accumulate_grad_hook(lambda p: setattr(p, 'grad', None))
t1.sum().backward(create_graph=True)
""",
    "the gradient of relu at NaN": """
t1 = torch.tensor([-1.0, 2.0], requires_grad=True)
t1.log().relu().sum().backward()
F.hardtanh(t1.log()).sum().backward()
""",
    "a number counts as an operand of another shape": """
t1 = 2 - torch.tensor([2.0, 0.0]).unfold(0, 2, 1)
""",
    "addmm looks at types first": """
t1 = torch.addmm(torch.ones(2), torch.ones(2, 3), torch.ones(1, 1, dtype=torch.float64))
""",
    "del of a gradient": """
t1 = torch.tensor([0.5, -0.75], requires_grad=True)
t1.sum().backward()
del t1.grad
t1.sum().backward()
""",
    "of two leaves that get one gradient the second keeps it": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True)
t2 = torch.tensor([1.0, 2.0], requires_grad=True)
(t1 + t2).exp().sum().backward()
t3, t4, t5 = (torch.tensor([1.0, 2.0], requires_grad=True) for _ in range(3))
torch.stack([t3 + t4, t5 + t3, t4 + t5]).exp().sum().backward()
""",
    "a quotient rounded down has a node without a number": """
t1 = torch.tensor([-0.75, 0.125], requires_grad=True)
t2 = t1 // 2
t3 = t1.sum() // 2
""",
    "rows that are channels_last stay so": """
t1 = torch.ones(2, 4, 4, 6).contiguous(memory_format=torch.channels_last)
t2 = F.rms_norm(t1, (6,))
t3 = torch.cat([t1, t1], 2)
""",
    "one row that is pooled is squeezed in place": """
t1 = F.max_pool1d(torch.ones(4, 6), 3, 1, 1)
""",
    "borders of infinity": """
t1 = F.pad(torch.tensor([[1.0, float('inf'), 2.0]]), (1, 1), 'reflect')
""",
    "half precision is rounded once": """
t1 = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float16, requires_grad=True)
F.gelu(t1.softmax(0)).sum().backward()
t2 = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float16, requires_grad=True)
(t1 + t2).exp().sum().backward()
""",
    "a copy onto its own place looks at nothing": """
t1 = torch.tensor([0.0, 4.0, -1.0], requires_grad=True).expand(2, 3)
t1.data.copy_(t1.data)
""",
    "a view is never alone with its memory": """
t1 = torch.tensor([0.5, -0.75, 0.125], requires_grad=True)
t2 = t1.view(1, -1)
t3 = t2.index_select(1, torch.tensor([0]))
torch.autograd.graph.increment_version(t1)
(t2.sum() * t3.mean()).backward(retain_graph=True)
""",
    "no largest element in a dimension of size 0": """
t1 = torch.tensor([], dtype=torch.bfloat16, requires_grad=True).amax(0)
t2 = torch.zeros(3, 0).max(-1)
t3 = torch.zeros(0, 3).argmax()
""",
    "the largest element was overwritten before its backward": """
t1 = torch.tensor([[0.75], [0.25]], requires_grad=True)
t2 = t1.max()
t1.data.sub_(0.5)
t2.backward()
""",
    "sign, maximum and logsumexp of what is not a number": """
t1 = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
t2 = t1.log()
t3 = t2.sgn()
torch.maximum(t1, t2.detach()).sum().backward()
t4 = (t1 / 0).logsumexp(0)
t5 = t2[0].softmax(0)
""",
    "rows that share memory are filled together": """
t1 = torch.tensor([3.0, -0.5, 0.5], requires_grad=True)
g1 = torch.autograd.grad(t1.sum(), t1)[0]
g1.index_fill_(0, torch.tensor([0]), 1.5)
t2 = torch.tensor([0.25, 1.25, -1.5])
t2.unfold(0, 2, 1).index_fill_(0, torch.tensor([0]), 1.5)
t2.unfold(0, 2, 1).cumsum_(0)
""",
    "the flag of a view with a forbidden history": """
t1 = torch.tensor([2.0, 0.0, 4.0], requires_grad=True)
t2 = t1.split(1, -1)[0]
torch.autograd.graph.increment_version(t1)
t2.requires_grad = True
t2.sum(5)
""",
    "what divides a loss is computed from the right": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t2 = t1.sigmoid()
t3 = F.kl_div(t2, t1)
t2.mul_(1)
t3.backward()
""",
    "a leaf of another type since": """
t1 = torch.tensor([-0.5, 0.5], requires_grad=True)
t2 = t1 * 3
t1.data = t1.data.double()
t2.sum().backward()
""",
    "a gradient from inference mode is not added to": """
t1 = torch.tensor([-1.0, 3.0], requires_grad=True)
with torch.inference_mode():
    t1.grad = torch.ones_like(t1)
t1.sum().backward()
""",
    "a piece of nothing": """
t1 = torch.tensor([], requires_grad=True)
t2 = t1.split(1, 0)[0]
t2.fill_(0.5)
""",
    "the product of one number hands its gradient on": """
t1 = torch.tensor(-0.75, requires_grad=True)
((t1 - t1).prod().sum() * 2).backward()
""",
    "sizes of one keep their strides when a mean is undone": """
t1 = torch.tensor([[-0.75], [0.125], [0.75]], requires_grad=True)
g1 = torch.autograd.grad((t1.sum(-2, keepdim=True) * 2).sum(), t1)[0]
""",
    "a write that saves its own base": """
t1 = torch.tensor([[1.5, 2.0, 0.5], [0.75, 3.0, 1.25]], requires_grad=True) * 1
t2 = t1.squeeze(0)
t2.mul_(t1)
t2.sum().backward()
""",
    "indexed dimensions stand still in the order of strides": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t2 = t1.sum(1, keepdim=True).unsqueeze(-1)
t3 = t2[[1, 0], 1:]
t4 = t1.t()[torch.zeros(2, 3, dtype=torch.long).t()]
t5 = t1[:, torch.zeros(3, 2, dtype=torch.long).t()]
t6 = t1[[0, 1], [0, 1, 2]]
""",
    "a number is expanded with strides of 0": """
t1 = torch.tensor(3.0)
t2 = t1.expand(1, 1)
t3 = torch.tensor([2.0]) * 1
t4 = t3[None]
t4[None] = t4
""",
    "a number that does not fit its type": """
t1 = torch.tensor([2, 2, 0], dtype=torch.uint8)
t1[1:] = -1.5
t1[0] = -1
t1[0] = 256
t2 = torch.tensor([1.0, 2.0])
t2[0] = 2j
t2[0] = 1e39
""",
    "a gradient of the shape that the tensor had before": """
t1 = torch.tensor([[0.5, -1.0, 2.0]], requires_grad=True)
t2 = t1 * 2
t2.data = torch.ones(2, 2)
g1 = torch.autograd.grad(t2, t1, torch.ones_like(t2))[0]
t2.backward(torch.ones_like(t2))
g2 = torch.autograd.grad(t2.pow(3).sum(), t2, create_graph=True)[0]
""",
    "what retain_grad keeps is contiguous": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True) * 1
t1.retain_grad()
(t1.t() * torch.ones(3, 2)).sum().backward()
""",
    "an alias of a view with an outdated history is made under torch's lock": """
t1 = torch.tensor([0.0, 4.0, -1.0], requires_grad=True)
t2 = t1 / 2
t3 = t2[:1]
t2.mul_(2)
t4 = torch.Tensor(t3)
t4.sum().backward()
""",
    "a saved tensor is written through its storage": """
t1 = torch.tensor([0.0, 4.0, -1.0], requires_grad=True)
t2 = t1.std()
t1.untyped_storage().fill_(0)
t2.backward()
""",
    "what is ignored is not looked at": """
t1 = torch.tensor([[4.0, float('nan'), 3.0], [-0.5, 0.5, -0.75]], requires_grad=True)
t2 = F.cross_entropy(t1, torch.tensor([0, 1]), ignore_index=0, reduction='none')
t2[1].backward()
""",
    "what is computed in another type is written when all of it is there": """
t1 = torch.tensor([0.0, 4.0, -1.0])
t2 = t1.as_strided((2, 2), (1, 1))
t2.sub_(torch.tensor([-0.5, 1.0], dtype=torch.float64))
""",
    "cumprod beside zeros and numbers that are not finite": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t2 = (t1 * 0).cumprod(1)
t3 = F.kl_div(t2, t2)
t2.data += 2
t3.sum().backward()
""",
    "nothing is detached that inference mode has made": """
with torch.inference_mode():
    t1 = torch.tensor([0.5, -1.0], requires_grad=True)
t1.detach_()
""",
    "an alias of one of several views may not be changed either": """
t1 = torch.ones(4, requires_grad=True) * 2
t2 = torch.Tensor(t1.split(2)[0])
t3 = torch.Tensor(t2)
t3.add_(1)
with torch.no_grad():
    t4 = t1[:1]
t5 = torch.Tensor(t4)
t5.add_(1)
""",
    "the gradient of sgn has no memory, and nothing can be added to it": """
t1 = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
t1.sgn().sum().backward()
t2 = t1.grad * 2
(t1 * 2).sum().backward()
t1.grad = None
(t1 * 2).sum().backward()
""",
    "what inference mode has made is not counted alike everywhere": """
t1 = torch.tensor([0.5, -1.0], requires_grad=True)
with torch.inference_mode():
    t2 = t1.max()
    t3 = torch.tensor([0, 1])
t4 = t2.cumsum(0)
t5 = torch.dot(t1, t3)
""",
    "where takes its mask first as a function, second as a method": """
t1 = torch.tensor([0.5, -1.0])
t2 = torch.tensor([1, 2])
t3 = t1.where(t2, t1)
t4 = torch.where(t1, t1, t1)
t5 = t1.where(t1 > 0, t1)
""",
    "a version is counted up beside an array": """
t1 = torch.tensor([-0.75, 0.125, 0.75], requires_grad=True)
t2 = torch.tensor([[1.0], [2.0], [0.0]])
t3 = t1.square().sum()
a1 = t2.numpy()
torch.autograd.graph.increment_version(t1)
t3.backward()
""",
    "what a rehearsal meets is met again by the pass itself": """
t1 = torch.tensor([2.0, 0.0, 4.0], requires_grad=True)
t2 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True) / 2
t2.data = t1.data
t2.retain_grad()
t2.exp_()
torch._foreach_add_([t2.data], 1.0)
t2.sum().backward()
""",
    "a gradient that torch casts lies in memory of its own": """
t1 = torch.tensor([0.125, 0.75, 0.25], requires_grad=True)
t2 = t1.double()
t3 = torch.outer(t2, t1)
t3.mean().backward()
""",
    "a node holds what its hook has made": """
t1 = torch.tensor([4.0, -1.0, 3.0], requires_grad=True)
t2 = t1 + t1
t3 = t2.ravel()
t2.register_hook(lambda g: g.clamp(-1, 1))
t3.sum().backward()
""",
    "what a hook returns lies as it was returned": """
t2 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t4 = t2.topk(1)[0]
t5 = t2.swapaxes(0, 1)
t6 = t5.min(0).values
t2.register_hook(lambda g: g * 2)
(t4.exp() + t6).sum().backward()
""",
    "a leaf is resized by out=": """
t6 = torch.tensor([[1.5, 2.0, 0.5], [0.75, 3.0, 1.25]], requires_grad=True)
t8 = t6 * 1
t13 = t8[0]
with torch.no_grad():
    torch.mul(t13, 2, out=t6)
t8.backward(torch.ones_like(t8))
""",
    "attention divides by the sums of the forward": """
import numpy as np
def waves(*shape):
    return torch.tensor(np.sin(np.arange(1, np.prod(shape) + 1) * 1.7).astype(np.float32).reshape(shape))
t1 = waves(2, 2, 3, 4).requires_grad_()
t2 = F.scaled_dot_product_attention(t1, t1, t1, is_causal=True)
t1.detach().numpy().reshape(-1)[:1] = 0.5
(t2.exp() + t2).sum().backward()
""",
    "a view made in inference mode remains one in its views": """
t1 = torch.tensor([0.125, 0.75, 0.25], requires_grad=True)
t2 = list(t1)[0]
with torch.inference_mode():
    t3 = t1.expand(2, *t1.shape)
t4 = list(t3)[0]
torch.autograd.graph.increment_version(t2)
t4.grad_fn
""",
    "grad mode inside of inference mode": """
t1 = torch.tensor([4.0, -1.0, 3.0], requires_grad=True)
t2 = t1.expand(2, 3)
with torch.inference_mode():
    with torch.enable_grad():
        t1.copy_(t1)
        t1.view(-1).add_(1)
""",
    "pieces of nothing": """
t1 = torch.tensor([], dtype=torch.float32, requires_grad=True)
t2 = t1.chunk(2, 0)[-1]
t2.mul_(2)
""",
    "a number is selected by index": """
t1 = torch.tensor(-0.5, requires_grad=True)
t2 = t1.index_select(0, torch.tensor([0]))
t2.backward()
""",
    "where lays out its result as its mask": """
t1 = torch.tensor([[1.5, -2.0, 1.0], [0.5, 1.0, 2.0]], requires_grad=True)
t2 = t1.t().round()
t3 = torch.tensor([[True, False], [False, True], [True, True]])
t4 = torch.where(t3, t2, 0.0)
""",
    "a remainder beside a number": """
t1 = torch.ones(2, 4, 4, 6).contiguous(memory_format=torch.channels_last)
t2 = F.adaptive_avg_pool2d(t1, 1)
t3 = t2 % 2
""",
    "index_put_ drops no leading ones": """
t1 = torch.tensor([0.0, 4.0, -1.0], requires_grad=True)
t2 = t1.chunk(2, 0)[-1]
t3 = torch.tensor([[1.5, 2.0, 0.5], [0.75, 3.0, 1.25]], requires_grad=True) * 1
t3.index_put_((torch.tensor([1, 0]),), t2)
""",
    "layer_norm of several types": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
t2 = F.layer_norm(t1 == t1, (3,), t1[0])
t3 = F.layer_norm(t1, (3,), t1[0].double())
t4 = F.layer_norm(t1.argmax(), ())
""",
    "a norm that overflows on its way": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t2 = (t1 / 0).nan_to_num(1.0, 2.0)
t3 = t2 / 2
t4 = t3.norm()
t5 = F.margin_ranking_loss(t1, t2, torch.sign(t2))
""",
    "a leaf that became a result": """
t1 = torch.tensor([1.5, 2.0, 0.5], requires_grad=True)
t2 = t1 * 2
t1.requires_grad_(False)
t1.mul_(torch.ones(3, requires_grad=True))
t2.sum().backward()
""",
    "a hook after accumulation where the backward begins": """
t1 = torch.tensor([0.75, 0.25, 1.25], requires_grad=True)
t1.register_post_accumulate_grad_hook(lambda p: setattr(p, 'grad', None))
t1.backward(gradient=t1.detach())
""",
    "CopySlices lays its gradient out as the base": """
t1 = torch.ones(2, 4, 4, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
t2 = t1.clone()
t2[:, 1].sigmoid_()
t2.sum().backward()
""",
    "a view is turned round in place": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True) * 1
t2 = t1.expand(2, 2, 3)
t2.transpose_(0, 1)
t3 = t2 * 2
""",
    "other memory of another type": """
t1 = torch.tensor([-2.0, 1.0, 2.0], requires_grad=True)
t2 = t1.view(3)
t2.data = t1.detach().half()
t3 = torch.autograd.grad(t2.sum(), t2)[0]
""",
    "the direction of nothing": """
t1 = torch.tensor([1.0, 2.0, 0.0], requires_grad=True)
t1.atan2(t1).sum().backward()
""",
    "windows that overlap, as a result": """
t1 = torch.tensor([2.0, 0.5, 1.0])
t2 = t1.unfold(0, 2, 1)
torch.mul(t2, 2, out=t2)
t3 = t1.half() / 2j
""",
    "a mask of another type": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t2 = t1.masked_select(torch.tensor([1, 2]))
""",
    "a leaf's step ends near zero": """
t1 = torch.tensor([-0.5, 0.5, -0.75], requires_grad=True)
t2 = t1.square().sum() * 5
t2.backward()
opt1 = torch.optim.SGD([t1], lr=0.1, fused=True)
opt1.step()
""",
    "random numbers for expanded memory": """
t1 = torch.tensor([0.5, -1.0], requires_grad=True) * 1
t1.view(-1, 1).expand(-1, 2).bernoulli_(0.5)
t2 = torch.any(t1.detach() > 0, 0)
t2.lerp_(t1 > 0, 0.5)
""",
    "a base is turned round without grad": """
t1 = torch.tensor([[1.5, 2.0, 0.5], [0.75, 3.0, 1.25]], requires_grad=True)
t2 = t1 ** 0.5
with torch.no_grad():
    t2.transpose_(0, -1)
t2[5:] = 2
t2.adjoint().backward(gradient=t1.detach())
""",
    "an index that fits nothing, into numbers that are not followed": """
t1 = torch.tensor([[-2.0, 1.0], [2.0, 0.0]], dtype=torch.bfloat16)
t2 = t1.scatter(0, torch.tensor([[0, 1, 0]]), t1[:1])
t3 = t1.gather(1, torch.tensor([[0, 5]]))
""",
    "retain_grad asks for the node that a view has": """
t1 = torch.tensor([1.5, 2.0, 0.5], requires_grad=True)
with torch.no_grad():
    t2 = t1.view(3)
    t2.tanh_()
t2.retain_grad()
""",
    "a gradient put back through a window lies like the tensor": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True).t() * 1
t2 = t1.unsqueeze(0)
t1.zero_()
t3 = torch.autograd.grad(t2, t1, torch.ones_like(t2))[0]
""",
    "any and all of bytes are bytes, and of no dimension nothing is reduced": """
t1 = torch.tensor([[0, 1], [2, 0]], dtype=torch.uint8)
t2 = t1.any(0)
t3 = torch.all(t1, dim=())
""",
    "rounding in half precision where the gradients cancel": """
t1 = torch.tensor([0.5, -0.75, 0.125], requires_grad=True)
t1.half().log_softmax(0).logsumexp(0).backward()
""",
    "a hook looks at a gradient that is added into afterwards": """
t1 = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
t2 = t1.half().float()
t2.register_hook(lambda g: print(tuple(g.shape)))
(-(t1 + t2)).backward(gradient=t1.detach())
""",
    "infinities in a gradient that a mask keeps out": """
t1 = torch.tensor([2.0, -4.0], requires_grad=True)
t2 = torch.tensor([3.0, 3.0], requires_grad=True)
torch.maximum(t1, t2).backward(torch.tensor([float('inf'), float('nan')]))
torch.nn.functional.hardswish(t1).backward(torch.tensor([1.0, float('inf')]))
t1.pow(t2 - t2).backward(torch.tensor([float('inf'), 1.0]))
""",
    "NaN goes where a comparison sends it": """
t1 = torch.tensor([float('nan'), -1.0, float('-inf')], requires_grad=True)
torch.nn.functional.elu(t1).sum().backward()
t2 = t1 ** 0.5
t2.sum().backward()
t1.norm(float('inf')).backward()
""",
    "a private buffer is not what was written since": """
t1 = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
t2 = torch.nn.functional.logsigmoid(t1)
t3 = torch.tensor([[4.0, 1.0], [1.0, 3.0]], requires_grad=True)
t4 = torch.linalg.det(t3)
t1.data.mul_(-2)
t3.data.mul_(2)
t2.sum().backward()
t4.backward()
""",
    "a stretched gradient of one element": """
t1 = torch.tensor([[0.75]], requires_grad=True)
t1.transpose(0, 1).sum(0).sum().backward()
t2 = torch.tensor([[0.75]], requires_grad=True)
t2.squeeze(0).sum().backward()
""",
    "numbers that are written while they are read": """
t1 = torch.tensor([[2.0, 0.5, 1.0], [3.0, -1.0, 4.0]])
t1[:, [0, 1]] = t1[..., 0]
t1[:, 1:] = t1[:, :-1]
""",
    "hooks of a leaf that was detached": """
t1 = torch.tensor([4.0, -1.0, 3.0], requires_grad=True)
t2 = t1 * 2
t1.sum().backward()
t1.register_post_accumulate_grad_hook(lambda p: setattr(p, 'grad', None))
t1.detach_()
t2.sum().backward()
""",
    "an uneven border is padded before the channels are looked at": """
t1 = torch.ones(1, 2, 3)
t2 = torch.nn.functional.conv1d(t1, torch.ones(4, 3, 2), padding='same')
""",
    "which weights do not fit": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t2 = torch.nn.functional.binary_cross_entropy_with_logits(t1, t1, pos_weight=torch.arange(6.0))
t3 = torch.nn.functional.binary_cross_entropy_with_logits(t1, t1, pos_weight=torch.ones(2, 2, 3))
t4 = torch.nn.functional.binary_cross_entropy_with_logits(t1, t1, weight=torch.ones(2, 2, 3))
""",
    "parts of a complex number are written without grad mode": """
t1 = torch.tensor([1.0, 2.0, 0.0], requires_grad=True)
t2 = torch.fft.fft(t1).real
with torch.no_grad():
    t2.copy_(t2)
""",
    "a gradient that is NaN loses in a maximum": """
t1 = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
t2 = t1.maximum(torch.tensor([2.0, 1.0, 3.0]))
t2.backward(torch.full_like(t2, float('nan')))
""",
    "a view of a transposed base is made anew as it lies": """
t2 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t3 = t2.t().sigmoid()
t4 = t3.view_as(t3)
t3 /= -1.5
g1 = torch.autograd.grad(t4.sum(), t3, allow_unused=True)[0]
""",
    "what has no derivative stops a backward on its way": """
t1 = torch.tensor([-2.0, 1.0, 2.0], requires_grad=True)
t2 = torch.relu(t1 // 2)
t3 = torch.tensor([0.5, -1.0], requires_grad=True).exp()
(t3.sum() + t2.sum()).backward()
t3.sum().backward()
""",
    "out= in inference mode": """
with torch.inference_mode():
    t3 = torch.tensor(1.0)
    with torch.set_grad_enabled(True):
        torch.add(t3, torch.tensor([0.5, -1.0], requires_grad=True), out=t3)
""",
    "indices are broadcast to the other sizes": """
t11 = torch.tensor([[0.5, -1.0], [1.5, 0.25], [1.0, 2.0], [0.0, 1.0]])
t17 = torch.take_along_dim(t11, torch.tensor([[1], [0]]), 1)
""",
    "a half divided by a float in place": """
t1 = torch.tensor([4.0, -1.0, 3.0], requires_grad=True)
t5 = t1.detach().clamp(-1, 1).half() + 1
t5.div_(t1)
t5.pow(2).sum().backward()
""",
    "a backward without a model refills what retains its gradient": """
t1 = torch.tensor([-0.5, 0.5, -0.75], requires_grad=True)
t6 = t1 / 2
t1.register_hook(lambda g: None)
t6.sum().backward(inputs=[t6])
t6.sum().backward(create_graph=True)
t6.grad.mul_(0.5)
""",
    "a value without its leading ones is another tensor": """
t7 = torch.tensor(0.0).view(-1, 1).expand(-1, 2)
t7[t7 > 0] = t7
""",
    "an inference tensor of another type": """
with torch.inference_mode():
    t2 = torch.tensor([[-0.75]])
t14 = t2.type_as(torch.tensor(1))
""",
    "what a product of one batch with another folds": """
t1 = torch.ones(2, 2, 3, requires_grad=True) @ torch.ones(1, 3, 2)
""",
    "a single number keeps the stride that stretched it": """
t1 = torch.tensor([0.5], requires_grad=True)
t1.double().sum().backward()
t1.trunc().sum().backward()
t1.flip(0).sum().backward()
t1.cumsum(0).sum().backward()
t1.view(1, 1).sum().backward()
""",
    "places that a dimension does not have": """
t1 = torch.zeros(2, 0, requires_grad=True)
t2 = torch.nn.functional.embedding(torch.tensor([[2]]), t1)
t3 = torch.ones(2, 3).index_select(1, torch.tensor([-1]))
t4 = torch.ones(2, 3).index_select(0, torch.tensor([-1]))
t5 = torch.ones(2, 3).take_along_dim(torch.zeros(3, 1, dtype=torch.long), 1)
""",
    "whether unknown numbers are probabilities": """
t1 = torch.tensor([[2.0, 2.0, 2.0]]) * 8
t2 = torch.nn.functional.layer_norm(t1, (3,))
t3 = torch.nn.functional.binary_cross_entropy(t2, torch.ones(1, 3))
""",
    "a reshape that copies what inference mode made": """
with torch.inference_mode():
    t1 = torch.eye(3, requires_grad=True)
t2 = t1.data.t().ravel()
""",
    "half precision that loses what is small on the way": """
t1 = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float16, requires_grad=True)
t2 = torch.nn.functional.pairwise_distance(t1, t1.detach(), 3.0)
t2.backward()
""",
    "which of the types a power is computed in": """
t1 = torch.tensor([[1.5, 2.0]], requires_grad=True)
t2 = torch.tensor([1.5, 2.0], dtype=torch.float64, requires_grad=True)
(t1 ** t2).sum().backward()
(t1 ** torch.tensor([True, False])).sum().backward()
(torch.tensor([2, 3], dtype=torch.uint8) ** t1).sum().backward()
""",
    "a cross product of which only rounding is left": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t2 = torch.tan(t1)
t3 = torch.linalg.cross(t2, t2)
t3.roll(1).backward(gradient=t3.detach())
""",
    "a list of lists is a tuple of indices": """
t1 = torch.tensor([[1, 2, 0], [2, 0, 1]])
t1[[[0, 1], [1, 0]]] = -1
t2 = t1[[[0, 1], [1, 0]]]
""",
    "single precision on the way to double": """
t1 = torch.tensor([[0.1, -1.3], [1.7, 0.3]], requires_grad=True)
t2 = torch.tensor([2.1, 0.7], dtype=torch.float64, requires_grad=True)
(t1.sum() * t2).sum().backward()
""",
    "a search in what is not sorted": """
t3 = torch.tensor([4.0, -1.0, 3.0], requires_grad=True).sqrt()
t14 = torch.searchsorted(t3, t3)
""",
    "a view of several that a call without a model has resized": """
t1 = torch.tensor([0.0, 4.0, -1.0], requires_grad=True)
t3 = t1.unbind(0)[0]
with torch.no_grad():
    torch.exp(torch.ones(2, 2), out=t3)
t4 = t3 * 2
""",
    "a fused step in half precision": """
t1 = torch.ones(4, 4, dtype=torch.float16, requires_grad=True)
t1.sum().backward()
torch.optim.SGD([t1], lr=0.1, fused=True).step()
""",
    "a piece of a gradient whose memory torch lays out": """
t3 = torch.tensor([-2.0, 1.0, 2.0], requires_grad=True).reshape(-1)
t4 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
F.linear(torch.vstack((t4, t3)), torch.ones(2, 3)).relu().sum().backward()
""",
    "a gradient that is expanded cannot be added to": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True)
t1.grad = torch.tensor(1.0).expand(2)
t1.sum().backward()
""",
    "a retained gradient has the shape that the node made": """
t1 = torch.tensor([-0.5, 0.5, -0.75], requires_grad=True) * 2
with torch.no_grad():
    t1.unsqueeze_(0)
t1.sum().backward(inputs=[t1])
""",
    "no kernel, or elements that share their memory": """
t1 = torch.tensor(True)
t2 = torch.broadcast_to(t1, (2,))
t2.lerp_(t2, 0.5)
""",
    "hooks before and after a leaf has its gradient, where the backward begins": """
t1 = torch.tensor([-2.0, 1.0, 2.0], requires_grad=True)
t1.register_post_accumulate_grad_hook(lambda p: setattr(p, 'grad', None))
t1.register_hook(lambda g: g.clamp(-1, 1))
t1.backward(torch.ones_like(t1))
""",
    "the gradient of a target is worked out in place": """
t1 = torch.tensor([0.3, 0.6], requires_grad=True)
t2 = torch.tensor([0.5, 0.25], requires_grad=True)
torch.nn.functional.binary_cross_entropy(t1, t2).backward()
torch.nn.functional.embedding(torch.tensor([0.5]), torch.tensor([0.5]))
""",
    "a random fill takes the retained gradient along": """
t4 = torch.tensor([0.5, -1.0, 2.0], requires_grad=True).exp()
t4.retain_grad()
t4.random_(0, 3)
t4.sum().backward()
""",
    "embedding_renorm_ looks at the indices first": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t2 = F.embedding(torch.tensor([True, False]), t1 * 1, max_norm=1.0)
t3 = torch.embedding_renorm_(t1, torch.tensor([1.0, 0.0]), 1.0, 2.0)
""",
    "a backward that fails behind a leaf with a hook has freed what it ran": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True)
t3 = (torch.tensor([1.0, 2.0], requires_grad=True) * 1).exp()
t3.add_(1)
t4 = t1 * 2
t1.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
(t3 + t4).sum().backward()
(t4.sum() + t3.sum()).backward()
""",
    "a silent write harms a retained gradient, also where the backward fails later": """
t1 = torch.tensor([-0.5, 0.5, -0.75], requires_grad=True)
t2 = t1 * t1
t2.sum().backward(inputs=[t2])
t3 = t2 * t2
t2.sum().backward()
t2.data = t2.data * 2
(t2.sum() + t3.sum()).backward()
""",
    "what overflows on the way is still refused where it does not fit": """
t1 = (torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]) / 0).nan_to_num(1.0, 2.0)
t2 = F.nll_loss(t1, torch.tensor([0, 3]))
""",
    "lerp wants a weight of its own type, unless it has no dimensions": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True)
t2 = t1.lerp(t1 * 2, torch.tensor(0.25, dtype=torch.float64))
t3 = t1.lerp(t1 * 2, torch.tensor([0.25, 0.5], dtype=torch.float64))
""",
    "operands of another type are seen as their copies lie": """
t1 = torch.tensor([1.5, -2.0, 1.0], requires_grad=True).unfold(0, 2, 1)
t2 = t1 + torch.zeros(2, 2, dtype=torch.float64).unfold(0, 2, 1)
""",
    "whole numbers are not divided by zero": """
t1 = torch.tensor([1, 2]) // torch.tensor([True, False])
t2 = torch.tensor([1, 2]) % 0
t3 = torch.tensor([True]) // torch.tensor([True])
""",
    "one element that was expanded keeps its strides of 0 through views, flips and casts": """
t1 = torch.tensor([[-2.0]], requires_grad=True)
t1.reshape(-1).sum().backward()
g1 = torch.autograd.grad(t1.squeeze(0).sum(), t1)[0]
g2 = torch.autograd.grad(t1.flip(0).sum(), t1)[0]
g3 = torch.autograd.grad(t1.double().sum(), t1)[0]
g4 = torch.autograd.grad(t1.cumsum(0).sum(), t1)[0]
g5 = torch.autograd.grad(t1.sum(0).sum(), t1)[0]
""",
    "a row needs no flattening to be repeated": """
t1 = torch.tensor([1.5, -2.0], requires_grad=True)
t2 = t1.repeat_interleave(2)
""",
    "max_pool1d has words of its own for what is too small": """
t1 = torch.ones(2, 4, 1, requires_grad=True)
t2 = F.max_pool1d(t1, 2)
""",
    "one matrix among several is seen as a matrix where it needs a gradient": """
t1 = torch.ones(1, 3, 4, requires_grad=True)
t2 = t1 @ torch.ones(2, 4, 2)
t3 = torch.ones(2, 5, 3) @ t1
t4 = torch.ones(1, 3, 4) @ torch.ones(2, 4, 2, requires_grad=True)
""",
    "rows that do not exist, in the words of three loops": """
t1 = torch.ones(2, 3)
t2 = t1.index_select(0, torch.tensor([5]))
t3 = t1.index_select(1, torch.tensor([0, -1]))
t4 = t1[:0].index_select(0, torch.tensor([0]))
t5 = t1.index_copy(0, torch.tensor([-1]), t1[:1])
""",
    "a format is read off the strides, and nothing lies in channels_last": """
t1 = torch.ones(2, 4, 4, 6)[..., :0]
t2 = t1.contiguous(memory_format=torch.channels_last)
t3 = t1.to(memory_format=torch.channels_last)
t4 = torch.ones(2, 3).t().to(memory_format=torch.contiguous_format)
""",
    "kron sees its factors as they lie": """
t1 = torch.ones(2, 3, requires_grad=True)
t2 = torch.kron(t1.unfold(0, 1, 1), torch.ones(3, 2))
t3 = torch.kron(t1.t(), t1.t())
""",
    "padding comes before channels are counted": """
t1 = F.conv1d(torch.ones(2, 1, 1), torch.ones(6, 4, 2), padding="same")
""",
    "dimensions are counted before sizes are looked at": """
t1 = torch.ones(2, 3, requires_grad=True)
t2 = F.triplet_margin_loss(t1, t1[..., None], t1)
t3 = F.cosine_embedding_loss(t1, t1[..., None], torch.ones(2))
t4 = torch.tensordot(t1, t1[0])
t5 = F.nll_loss(t1, torch.tensor(0))
t6 = F.avg_pool1d(t1[0, 0], 3)
t1.detach()[0].tril_()
""",
    "more indices than dimensions, behind an ellipsis": """
t1 = torch.tensor([1.0, 2.0])
t2 = t1[0][..., ::2]
t3 = t1[..., ::2, 0]
""",
    "gather and scatter do not count from the end": """
t1 = torch.ones(2, 3)
t2 = t1.gather(1, torch.tensor([[0], [-1]]))
t3 = t1.scatter(1, torch.tensor([[0], [-1]]), 2.0)
t4 = torch.take_along_dim(t1, torch.tensor([[5], [-1]]), 1)
""",
    "the method where has its mask at the second place": """
t1 = torch.tensor([True, False])
t2 = t1.where(torch.tensor([False, True]), False)
t3 = torch.where(torch.tensor(1), t1, 0.0)
""",
    "a number is divided by whole numbers in their own memory": """
t1 = torch.tensor([2.0, 3.0], requires_grad=True)
torch.addcdiv(t1.detach(), t1, torch.tensor([1, 2])).sum().backward()
""",
    "an expanded window of half a history refuses its gradient, whatever it is": """
t2 = torch.tensor([1.0, 2.0, 0.0], requires_grad=True) * 1
t14 = t2.expand(2, 3)
t14.fill_(1)
F.layer_norm(t14, (3,)).pow(2).mean().backward()
""",
    "memory that was written before its tensor was met": """
t7 = nn.Parameter(torch.tensor([3.0, -0.5, 0.5]))
t7.untyped_storage().fill_(0)
t9 = t7.sum()
""",
    "the determinant of a singular matrix is rounding alone": """
t1 = torch.tensor([[13.1, 7.3, 9.7], [4.9, 11.3, 2.1]])
t2 = (t1.t() @ t1).det()
""",
    "in inference mode nobody asks for the history of a view, which would lose it": """
t1 = torch.tensor([1.0, 2.0, 0.0], requires_grad=True)
t2 = torch.fft.fft(t1).real
t2[None][..., -1] = True
with torch.inference_mode():
    t3 = t2.data
print(t2.grad_fn.name(), t2.is_leaf)
t2.sum().backward()
""",
    "a sum of inference tensors in a list, or by einsum, is counted inside": """
with torch.inference_mode():
    t1 = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
t2 = torch.einsum('ij->i', t1)
t3 = torch.einsum('ij,kj->ik', t1, t1)
""",
    "the gradient of nothing lies nowhere in particular": """
t1 = torch.tensor([], requires_grad=True)
t2 = torch.atleast_2d(t1)
g1 = torch.autograd.grad(t2, t1, torch.ones_like(t2))[0]
""",
    "a factor belongs to the type of the result": """
t1 = torch.tensor([1, 2])
t2 = torch.add(t1, t1, alpha=torch.tensor(True))
t3 = torch.sub(t1, t1 * 1.5, alpha=True)
t1.add_(t1, alpha=0.5)
t4 = torch.rsub(t1, 2, alpha=1.5)
""",
    "a slice of nothing is compared as it was written": """
t1 = torch.cat([torch.ones(0, requires_grad=True)])
t1[:-1] = torch.ones(0)
t2 = torch.ones(0, 2, requires_grad=True)[:-1, :]
""",
    "float16 is rounded on the way through softmax and losses, where torch keeps it": """
t1 = torch.tensor([[0.05, -16.45, -5.65], [-0.42, 10.44, 1.23]], dtype=torch.float16, requires_grad=True)
t2 = torch.tensor([[13.6, 16.86, -5.71], [2.89, -4.26, -9.62]], dtype=torch.float16)
t3 = F.cross_entropy(t1, t2, t2[1].abs(), reduction="sum")
t4 = F.binary_cross_entropy_with_logits(torch.tensor([2.2, -11.15], dtype=torch.float16), torch.tensor([1.5, 16.01], dtype=torch.float16))
t5 = t1.softmax(0)
""",  # noqa: E501
    "sizes come before kernels, smoothing before it is used, a format before memory": """
t1 = torch.tensor([1, 2, 3])
t2 = F.prelu(t1, t1)
t3 = torch.tensor([[0.5, -1.0]], requires_grad=True)
t4 = F.cross_entropy(t3, t3.softmax(1), label_smoothing=1.5)
t5 = torch.ones_like(t1, memory_format=torch.channels_last)
""",
    "distances whose squares overflow": """
t1 = torch.tensor([[1e20, 1.0], [3.0, -1e20]], requires_grad=True)
t2 = torch.cdist(t1, t1)
""",
    "products that cancel to a rounding of themselves": """
t1 = torch.tensor([[29.123, -31.7, 32.2]], requires_grad=True) * 1.1
t2 = torch.linalg.cross(t1, t1)
""",
    "no harm is told where the gradient is not known": """
t1 = torch.full((2, 3), 0.5, requires_grad=True)
t2 = t1.sin()
t1.data += True
F.layer_norm(t2, (3,))[:, 0].sum().backward()
""",
    "a slice that asks for the last of nothing is a view all the same": """
t1 = torch.tensor([], requires_grad=True)
t1[:-1] = t1.sum() * 2
""",
    "a gradient is a view of what backward began with, or of a tensor that nobody has": """
t1 = torch.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]], requires_grad=True)
t2 = torch.ones(3, 2)
g1 = torch.autograd.grad(t1.sum(), t1)[0]
g2 = torch.autograd.grad(t1.t(), t1, t2)[0]
g3 = torch.autograd.grad((t1.t() * t2).sum(), t1)[0]
g1.mul_(t1)
g2.mul_(t1)
g3.mul_(t1)
t3, t4, t5 = g1[0], g2[0], g3[0]
g1.requires_grad_()
g2.requires_grad_()
g3.requires_grad_()
print(t3.requires_grad, t4.requires_grad, t5.requires_grad)
t2.requires_grad_()
print(g2[0].requires_grad)
""",
    "how a view was made is seen where its call was mirrored": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True)
t2 = t1 * 2
t2.grad_fn.register_prehook(lambda g: None)
g1 = torch.autograd.grad(t2.sum(), t2)[0]
g1.mul_(t1)
""",
    "what gradient fits a tensor that was turned without its history": """
t1 = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.bfloat16, requires_grad=True)
t2 = t1 * 2
with torch.no_grad():
    t2.t_()
t2.sum().backward()
""",
    "what was made in inference mode and then got ordinary memory has no version": """
with torch.inference_mode():
    t1 = nn.Parameter(torch.ones(3))
t1.data = torch.zeros(3)
t1.data = torch.ones(2)
t1.requires_grad_(False)
t1.mul_(2)
""",
    "a forecast makes no history: the age of a node decides when it runs": """
t1 = torch.tensor([[0.5, -1.0], [1.5, 0.25]], requires_grad=True)
t2 = t1[1, 1]
t3 = F.elu(t2)
t2.detach().mul_(-1)
(t1.exp() + t2).sum().backward()
""",
    "a gradient that a hook looked at on its way to the caller": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True) * 2
t1.register_hook(lambda g: g * 2)
t2 = t1.clone()
g1 = torch.autograd.grad(t2.sum(), [t1, t2])[0]
""",
    "the form of a view that was turned by a call without a model": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t2 = (t1 * 1).t()
t3 = t2 * t2
t3 = t2 * t2
t4 = (t1 * 1).t()
t4.t_()
t5 = t4 * t4
""",
    "the last NaN of a window, and none among its places": """
t1 = torch.tensor([[[1.0, float("nan"), float("inf"), float("nan")]]], requires_grad=True)
t2, t3 = F.max_pool1d(t1, 4, return_indices=True)
t2.sum().backward()
t4 = t1.detach().log().kthvalue(1)
t5 = t1.sum().item()
""",
    "numbers whose rounding is made a factor, and those that overflow on the way": """
t1 = torch.tensor([[0.5, -1.0, 2.0]], requires_grad=True)
(t1 * 1e10).logcumsumexp(1).sum().backward()
F.gelu(t1 * 1e20, approximate="tanh").sum().backward()
t2 = torch.special.i0(t1 / 0)
t3 = F.embedding(torch.tensor([0]), t1.detach() * 1e20, max_norm=1.0)
(torch.eye(3, requires_grad=True) * 1e-30).inverse().sum().backward()
t4 = F.cross_entropy(t1[0] * 1e20, torch.tensor([1]))
t4.backward()
t5 = (t1 * 1e10)[None, None]
F.scaled_dot_product_attention(t5, t5, t5).sum().backward()
""",
    "a causal mask is added in place, also to scores that are a view": """
t1 = torch.ones(1, 3, requires_grad=True)
t2 = F.scaled_dot_product_attention(t1, t1[None], t1[None], is_causal=True)
t2.sum().backward()
""",
    "rows are copied into a dimension that has none, statistics into one number": """
t1 = torch.ones(0, 3).index_copy(0, torch.tensor([0]), torch.ones(1, 3))
t2 = torch.ones(1).expand(3)
t3 = F.batch_norm(torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]), t2, t2, training=True)
""",
    "autograd pays no heed to logical operations in place": """
t1 = torch.tensor([1.0, 0.0], requires_grad=True)
t1.logical_not_()
t2 = t1 * 2
t2.logical_and_(t1)
t2.sum().backward()
""",
    "a node does not compute what nobody needs": """
t1 = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
t2 = t1 * 2
with torch.no_grad():
    t2.t_()
t2.zero_()
t2.sum().backward(inputs=[t2])
""",
    "nothing is written through a view of nothing": """
t1 = torch.ones(0, 3, requires_grad=True) * 2
t2 = t1.expand(2, 0, 3)
t2.mul_(torch.tensor([1.0, 2.0, 3.0], requires_grad=True))
t2.sum().backward()
""",
    "a gradient that is zero stays it beside an infinite logarithm": """
t1 = torch.tensor([1.0, 0.0], requires_grad=True)
t2 = torch.tensor([-1.0, 0.0], requires_grad=True)
(torch.xlogy(t1, t2) * 0).sum().backward()
(torch.special.xlog1py(t1, t2 - 1) * torch.zeros(2)).sum().backward()
""",
    "whether a hook was shown a gradient that is handed out nobody knows": """
t1 = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
t1.register_hook(lambda g: g * 2)
t2 = t1.t()
g1, g2 = torch.autograd.grad((t2 * t2).sum(), [t1, t2])
""",
    "a parameter of inference mode": """
with torch.inference_mode():
    t1 = torch.ones(2)
t2 = nn.Parameter(t1)
t3 = nn.Parameter(t1, requires_grad=False)
""",
    "what is written while it is read is written in the order of the memory": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
t2 = t1[:, :2]
t2.t().addcmul_(t2, t2)
t2.t().sub_(t2, alpha=2)
torch._foreach_lerp_([t2.t()], [t2], 0.5)
""",
    "the words for a saved parameter are of its type now": """
net1 = nn.LayerNorm(2)
t1 = torch.tensor([[1.0, 2.0]], requires_grad=True)
t2 = net1(t1)
net1.double()
with torch.no_grad():
    net1.weight.mul_(2)
t2.sum().backward()
""",
    "a gradient that is retained with its history is contiguous": """
t1 = torch.tensor([0.125], requires_grad=True) * 2
t1.retain_grad()
t1.sum().backward(create_graph=True)
""",
    "memory that a call without a model makes larger": """
t1 = torch.tensor([[], []], dtype=torch.float64)
torch.exp(torch.tensor([3.0]), out=t1)
t2 = t1.mean()
""",
    "a filter may lie in rows of channels": """
t1 = torch.linspace(-1, 1, 48).view(2, 4, 6).requires_grad_()
t2 = F.conv1d(t1, t1.mT[:, :2], groups=2)
t3 = F.conv_transpose1d(t1[:, :2], torch.linspace(-1, 1, 16).view(2, 4, 2).mT.requires_grad_())
(t2.sum() + t3.pow(2).sum()).backward()
""",
    "a fused step of parameters that have another type than its state": """
net1 = nn.LayerNorm(2)
opt1 = torch.optim.Adam(net1.parameters(), lr=0.1, fused=True)
opt2 = torch.optim.SGD(net1.parameters(), lr=0.1, momentum=0.9, fused=True)
net1(torch.tensor([[1.0, 2.0]])).pow(2).sum().backward()
opt1.step()
opt2.step()
net1.double()
opt1.step()
opt2.step()
""",
    "a history that may not be used is told before an overlap": """
t1 = torch.tensor([-0.75, 0.125, 0.75], requires_grad=True)
t2 = t1.split(1, 0)[0]
t1.requires_grad_(False)
t1.exp_()
t1.copy_(t2)
t1.fill_(t2[0])
""",
    "a fused step without weight decay of an infinite parameter": """
t1 = torch.tensor([float("inf"), 1.0], requires_grad=True)
opt1 = torch.optim.SGD([t1], lr=0.1, fused=True)
opt2 = torch.optim.Adagrad([t1], lr=0.1, fused=True)
t1.grad = torch.ones(2)
opt1.step()
opt2.step()
""",
    "lerp_ looks for an overlap before it looks at shapes": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True) * 1
t1.lerp_(t1.t(), 0.5)
""",
    "lerp_ is forbidden before types are looked at": """
with torch.no_grad():
    t1 = torch.tensor([1.5, 2.0], requires_grad=True)[0]
t1.lerp_(torch.tensor(1.0, dtype=torch.float16, requires_grad=True), 0.5)
""",
    "a gradient in a hook's hands is torch's, to the last digit": """
t1 = torch.tensor([-1.5, 1.5, -2.0], requires_grad=True)
t1.data.mul_(2).add_(1).mul_(2)
t1.register_hook(lambda g: g.clamp(-1, 1))
nn.LayerNorm(3)(t1).pow(2).mean().backward()
""",
    "in place as well bfloat16 has to fit": """
t1 = torch.tensor([[], []], dtype=torch.bfloat16)
t1.index_fill_(1, torch.tensor([0]), 1.5)
""",
    "a number beside a dimension of size 1 is an operand, in C++ too": """
t1 = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()
t2 = t1.t().narrow(0, 0, 1)
g1 = torch.autograd.grad(t2.pow(3).sum(), t2, create_graph=True)[0]
g2 = torch.autograd.grad(t2.expm1().sum(), t2, create_graph=True)[0]
t3 = torch.linspace(0.1, 1, 24).view(2, 3, 4).requires_grad_().permute(2, 1, 0).narrow(2, 0, 1)
g3 = torch.autograd.grad(t3.sqrt().sum(), t3, create_graph=True)[0]
g4 = torch.autograd.grad(g3.sum(), t3, create_graph=True)[0]
g5 = torch.autograd.grad(t3.sigmoid().sum(), t3, create_graph=True)[0]
""",
    "two gradients in one memory are moved together": """
t1 = torch.linspace(0.1, 1, 12).view(1, 3, 4).permute(2, 0, 1).requires_grad_()
t2 = torch.full((4, 1, 3), 0.5, requires_grad=True)
g1, g2 = torch.autograd.grad((t1.view_as(t1) + t2).pow(2).sum(), [t1, t2])
""",
    "a sum of retained gradients may lie like the second": """
t1 = torch.linspace(0.1, 1, 24).view(2, 3, 4).requires_grad_()
t2 = t1.permute(2, 0, 1).narrow(1, 0, 1)
t2.retain_grad()
t2.exp().sum().backward(retain_graph=True)
t2.exp().sum().backward()
""",
    "in half precision, too, gradients lie and are held as in single": """
t1 = torch.tensor([[0.5], [-1.0]], dtype=torch.float16).expand(2, 3).detach().requires_grad_()
torch.maximum(t1, torch.tensor(0.5, dtype=torch.float16)).pow(2).sum().backward()
t2 = torch.ones(2, 3, dtype=torch.float16)[:1, :1].detach().requires_grad_()
t3 = t2.view_as(t2)
(t3.t() @ t3).pow(2).sum().backward()
""",
    "a gradient without numbers stays where it was given": """
t1 = torch.ones(2, 3, dtype=torch.bfloat16, requires_grad=True)
t2 = torch.full((6,), 2.0, dtype=torch.bfloat16)
t1.view(-1).backward(t2)
t1.view(-1).backward(t2)
g1 = torch.autograd.grad(t1.t(), t1, t1.detach().t())[0]
t3 = torch.ones(5000, requires_grad=True)
t4 = torch.full((5000,), 2.0)
t3.view(50, 100).backward(t4.view(50, 100))
t4.add_(1)
t3.grad.mul_(2)
""",
    "a gradient in another type than bfloat16 is new memory": """
t1 = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
t2 = t1.double()
t3 = torch.full_like(t2.detach(), 2)
g1 = torch.autograd.grad(t2, t1, t3)[0]
""",
    "what shares its memory is filled together, also where the write then fails": """
with torch.inference_mode():
    t1 = torch.arange(3.0).expand(2, 3)
t1.index_fill_(0, torch.tensor([0]), 1.5)
t1.masked_fill_(torch.tensor([[True, False, False], [False, False, True]]), 7)
print(t1)
""",
    "copy_ alone knows that whole numbers get no history": """
t1 = torch.arange(6).view(2, 3)
with torch.inference_mode():
    t2 = t1.view_as(t1)
t2.copy_(torch.ones(3, requires_grad=True))
t2[0] = torch.ones(3, requires_grad=True)
t3 = torch.arange(3).expand(2, 3)
t3.nan_to_num_()
""",
    "a view that is turned round in place keeps its new node until its base is written": """
t1 = torch.tensor([[0.5, -1.0, 2.0]], requires_grad=True)
t2 = t1.clone()
t3 = t2.t()
t3.t_()
t3.unsqueeze_(0)
t4 = torch.max(t3, 0)[0]
(t3 * t3).sum().backward(retain_graph=True)
t2.mul_(2)
t3.sum().backward()
""",
    "later hooks join the first, wherever history has gone": """
t1 = torch.arange(6.0).view(2, 3).requires_grad_()
t2 = t1 * 1
t2.register_hook(lambda g: g * 2)
t2.t_()
t2.register_hook(lambda g: g * 3)
t2.mul_(2)
t2.register_hook(lambda g: g * 5)
t2.sum().backward()
t3 = t1 * 1
t3.register_hook(lambda g: g * 2)
t3.detach_().requires_grad_()
t3.register_hook(lambda g: g * 3)
t3.sum().backward()
""",
    "a forbidden view fails at its first hook only": """
t1 = torch.arange(6.0).view(2, 3).requires_grad_() * 1
t2 = t1.split(1)[0]
t1.mul_(2)
t2.register_hook(lambda g: g * 2)
t2.register_hook(lambda g: g * 2)
""",
    "a number that its type has no room for": """
t1 = torch.tensor([1.5, -2.0], dtype=torch.float16)
t2 = t1.masked_fill(t1 > 0, -1e9)
t1.fill_(1e5)
t1.add_(t1, alpha=1e5)
t3 = t1.add(1, alpha=True)
t4 = torch.ones(2, dtype=torch.uint8).add(1, alpha=300)
t5 = t1.addcmul(t1, t1, value=1e5)
t6 = t1.clamp(max=70000)
t7 = torch.full((2,), 1e40)
t8 = torch.ones(2).sub(t1, alpha=None)
""",
    "half precision that is only converted lies as it comes": """
t1 = torch.tensor([[0.5, -1.0, 2.0]], requires_grad=True)
t1.half().sum().backward()
t2 = torch.autograd.grad(t1.sum(), t1.grad.grad)
""",
    "a sum of gradients lies as any sum": """
t1 = torch.tensor([[0.5, -1.0, 2.0]], requires_grad=True)
(t1.sum() * t1.t().mean()).backward()
""",
    "lerp_ of whole numbers looks for overlaps first, too": """
t1 = torch.tensor([[1, 0, 2], [0, 1, 1]])
t1.lerp_(t1.unfold(0, 2, 1), 0.5)
""",
    "a fused step knows no strides": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
t2 = t1[:, :2].requires_grad_()
opt1 = torch.optim.Adam([t2], lr=0.1, fused=True)
t2.pow(2).sum().backward()
opt1.step()
""",
    "a fused step takes all momentum buffers or none": """
t1 = torch.tensor([0.5, -1.0], requires_grad=True)
t2 = torch.tensor([1.5, 0.25], requires_grad=True)
opt1 = torch.optim.SGD([t1, t2], lr=0.1, momentum=0.9, fused=True)
t1.sum().backward()
opt1.step()
t2.sum().backward()
opt1.step()
""",
    "momentum is kept when all parameters are done": """
t1 = torch.tensor([0.5, -1.0], requires_grad=True)
t2 = torch.tensor([1.5]).expand(2).requires_grad_()
opt1 = torch.optim.SGD([t1, t2], lr=0.1, momentum=0.9)
(t1 * t2).sum().backward()
opt1.step()
opt1.step()
""",
    "a hook is shown a gradient with a history also where its numbers are unknown": """
t1 = torch.tensor([0.5, -1.0], dtype=torch.bfloat16, requires_grad=True)
t1.register_hook(lambda g: print(tuple(g.shape)))
t1.sum().backward(create_graph=True)
""",
    "anomaly mode fails at NaN, of what somebody needs, when the node is done": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True)
t2 = torch.tensor([0.5, 0.0], requires_grad=True)
with torch.autograd.set_detect_anomaly(True):
    t3 = (t1 * 0) / (t2 * 0)
    g1 = torch.autograd.grad(t3.sum(), [t1], retain_graph=True)[0]
with torch.autograd.detect_anomaly():
    t3.sum().backward()
""",
    "a gradient that is not known would go into memory that an array looks at": """
t1 = torch.tensor([3.0, -0.5, 0.5], requires_grad=True)
opt1 = torch.optim.Adam([t1], lr=0.1, fused=True)
a1 = t1.detach().numpy()
t2 = F.batch_norm(t1.expand(2, 3), None, None, training=True)
t1.mean().backward()
t2.prod().backward()
opt1.step()
""",
    "a leaf that is a view of what was written since is asked for its history by its gradient": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True).exp()
with torch.no_grad():
    t2 = t1[:1]
t3 = t2.requires_grad_().exp()
with torch.no_grad():
    t1.mul_(2)
t3.sum().backward()
t4 = torch.tensor([1.0, 2.0])
t5 = t4[0].requires_grad_()
t6 = t5.exp()
t4.mul_(torch.tensor([1.0, 2.0], requires_grad=True))
t6.backward()
""",
    "bytes are masks for index_put_ as well": """
t1 = torch.tensor([], dtype=torch.uint8)
t2 = torch.tensor([[2.0, 0.5, 1.0], [3.0, -1.0, 4.0]])
t2.index_put_((t1,), torch.ones(3))
t3 = t2[torch.tensor(1, dtype=torch.uint8)]
""",
    "small integers are no indices, but for a single number": """
t1 = torch.tensor([[2.0, 0.5, 1.0], [3.0, -1.0, 4.0]])
t2 = t1[torch.tensor(1, dtype=torch.int8)]
t1[torch.tensor([0, 1], dtype=torch.int8)]
t1[[0], torch.tensor([], dtype=torch.int16)] = 1
""",
    "a view whose base has got a history passes for a leaf until it is asked": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True)
t2 = torch.ones(2, 3)
t3 = t2.t()
t3[0] = t1[0]
t3.add_(1)
t3[1] = t1[1]
t3.mul_(2)
t3.grad_fn
t3.add_(1)
t3.sum().backward()
""",
    "an index of inference mode cannot be saved, wherever it points": """
with torch.inference_mode():
    t1 = torch.full((2,), 3)
t2 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t3 = t2[:, t1]
""",
    "a retained sum lies as its first part, which somebody else has given": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
t2 = t1.mT
t2.grad = torch.ones_like(t2)
t2.sum().backward(inputs=[t2])
""",
    "memory of inference mode does not tell how often a parameter was written": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True)
with torch.no_grad():
    t1.mul_(2)
t2 = (t1 * t1).sum()
with torch.inference_mode():
    t1.data = t1.data.clone()
t2.backward()
""",
    "the product of numbers of which one is zero hands out a view": """
t1 = torch.tensor([0.0, 4.0, -1.0], requires_grad=True)
(t1.prod() + (t1 * 2).sum()).backward()
t2 = torch.tensor([[1.0], [0.0]], requires_grad=True)
((t2 * 2).sum() + t2.prod(1).sum()).backward()
t3 = torch.tensor([[0.0]], requires_grad=True)
(t3.prod() + (t3 * 2).sum()).backward()
""",
    "a gradient of inference mode, detached, counts for itself": """
t1 = torch.ones(2, 2, requires_grad=True)
with torch.inference_mode():
    t2 = t1 * 2
t1.grad = t2.detach()
t1.T.mean().backward()
""",
    "a view without elements, of a leaf that was written": """
t1 = torch.ones(2, 3, requires_grad=True)
t2 = t1[5:]
with torch.no_grad():
    t1.add_(1)
((t1 * 2).sum() + t2.sum()).backward()
t1.grad = None
t2.sum().backward()
""",
    "a gradient with a history, of a leaf that has another type by then": """
t1 = torch.ones(3, requires_grad=True)
t2 = t1 * t1
t1.data = t1.data.double()
t2.sum().backward(create_graph=True)
t3 = torch.ones(2, 3, requires_grad=True)
t4 = t3 * 2
t3.data = t3.data.bfloat16()
t4.sum().backward()
""",
    "a gradient that a hook saw, on the memory of another one": """
t1 = torch.tensor([1.25, -1.5, 1.5], requires_grad=True)
t2 = t1.view(3)
t1.register_hook(lambda g: None)
t3, t4 = torch.autograd.grad(t2.exp().sum(), [t1, t2])
t3.add_(1)
t4.mul_(2)
t5 = t3 * t4
""",
    "an indexed write into the real part": """
t1 = torch.tensor([4.0, -1.0, 3.0], requires_grad=True)
t2 = torch.fft.fft(t1 * 1).real
t2.index_put_((torch.tensor([0]),), torch.tensor(2.0))
""",
    "einsum sums what inference mode has made": """
with torch.inference_mode():
    t1 = torch.ones(3)
t2 = torch.ones(2, 3, requires_grad=True)
t3 = torch.einsum('ij,k->i', t2, t1)
t3.sum().backward()
""",
    "out= without elements, an operand as well": """
t1 = torch.ones(2, 0)
t2 = torch.ones(1, 2, 0)
torch.add(t1, t2, out=t1)
torch.add(t1, t1, out=t1)
""",
    "an indexed write into a stretched plain tensor": """
t1 = torch.tensor([-2.0, 1.0, 2.0], requires_grad=True)
t2 = torch.full((3,), -2.0)
t2.expand(2, 3)[torch.tensor([[0, 1], [1, 0]])] = t1
(t2 * 3).sum().backward()
""",
    "a hook of a program that reads nodes, on the memory that backward was given": """
t1 = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True) * 1
t2 = t1.flatten()
t1.register_hook(lambda g: g.clamp(-1, 1))
t2.backward(gradient=t2.detach())
print(t1.grad_fn.name())
""",
    "what is detached from inference memory gets a history": """
with torch.inference_mode():
    t1 = torch.ones(3) * 2
t2 = t1.data
t3 = torch.ones(3, requires_grad=True)
t2[[-1]] = t3[0]
t2.mul_(t3)
t2.sum().backward()
""",
    "one element turned, padded, scattered and signed": """
t1 = torch.ones(2, 3)[:1, :1].clone().requires_grad_()
(t1.rot90().exp().sum() + (t1 * 2).sum()).backward()
t1.grad = None
(F.pad(t1, (1, 0)).exp().sum() + (t1 * 2).sum()).backward()
t1.grad = None
(t1.slice_scatter(t1, 0, 0, 2).sum() + (t1 * 2).sum()).backward()
t2 = torch.ones(2, 3)[:1, :1].clone().requires_grad_()
(torch.copysign(t1, t2).sum() + (t2 * 2).sum()).backward()
""",
    "nll_loss of a picture that does not lie row by row": """
t1 = torch.zeros(2, 4, 3, 4).mT.requires_grad_()
F.nll_loss(t1, torch.zeros(2, 4, 3, dtype=torch.long)).backward()
""",
    "an empty vector in block_diag": """
t1 = torch.ones(0, requires_grad=True)
t2 = torch.ones(2, 3, requires_grad=True)
(torch.block_diag(t1, t2).exp().sum() + (t2 * 2).sum()).backward()
t3, t4 = torch.autograd.grad(torch.block_diag(t2, torch.ones(1, requires_grad=True)).exp().sum(), [t2, t1], allow_unused=True)
""",  # noqa: E501
    "a second derivative that goes through the statistics of group_norm": """
t1 = torch.tensor([[[0.5, -1.0], [2.0, 3.0]]], requires_grad=True)
t2 = F.group_norm(t1, 1)
(t2 * t2).sum().backward(create_graph=True)
t3 = t1.grad
t1.grad = None
t3.sum().backward()
""",
    "what an LSTM keeps for backward, and what it reads again": """
t1 = torch.arange(72.0).view(3, 4, 6).sin().requires_grad_()
t2 = (torch.arange(24.0).view(2, 4, 3).sin(), torch.arange(24.0).view(2, 4, 3).cos())
t3 = nn.LSTM(6, 3, bidirectional=True)
with torch.no_grad():
    for p in t3.parameters():
        p.copy_(torch.linspace(-0.9, 0.7, p.numel()).view(p.shape))
t4, t5 = t3(t1, t2)
t1.data.mul_(2)
t2[0].data.mul_(2)
t4.sum().backward()
""",
    "operations on nothing but inference memory that has a history": """
with torch.inference_mode():
    t1 = torch.ones(3) * 2
    t5 = torch.ones(1, 2, 2, 2)
t2 = t1.data
t3 = torch.ones(3, requires_grad=True)
t2[[-1]] = t3[0]
t4 = t2.view(t2.shape)
t4 = -t2
t4 = t2 * t3
t6 = t5.clone(memory_format=torch.channels_last)
t7 = t1.unsafe_chunk(3)[0]
""",
    "isclose writes its result once for each question that it asks": """
t1 = torch.tensor([1.0, 2.0])
t2 = torch.isclose(t1, t1.clone(), equal_nan=True)
t3 = torch.isclose(t1, t1 + 1, rtol=0, atol=0)
t4 = torch.isclose(t1, t1, rtol=0, atol=0, equal_nan=True)
t5 = torch.isclose(t1 > 1, t1 > 2, equal_nan=True)
""",
    "a division with a rounding mode that is None": """
t1 = torch.tensor([1.0, 2.0], requires_grad=True)
t2 = torch.div(t1, 2.0, rounding_mode=None)
t3 = (t2 * 1).div_(t1, rounding_mode=None)
(t2 + t3).sum().backward()
""",
    "a custom Function returns a view of an input, without a history": """
class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[:]
    @staticmethod
    def backward(ctx, g):
        return g
t1 = torch.ones(2, requires_grad=True)
t2 = Same.apply(torch.ones(2))
t2.add_(t1)
with torch.no_grad():
    t3 = Same.apply(t1)
t3.add_(1)
""",
    "what a hook after accumulation returns": """
t1 = torch.ones(2, requires_grad=True)
t1.register_post_accumulate_grad_hook(lambda p: 1)
(t1 * 2).sum().backward()
t2 = torch.ones(2, requires_grad=True)
t2.register_post_accumulate_grad_hook(lambda p: t1)
(t2 * 2).sum().backward()
""",
    "set_ begins another accumulation": """
t1 = torch.ones(4, requires_grad=True)
t2 = []
for k in range(3):
    t2.append(t1[0:1] * 2)
    with torch.no_grad():
        t1.set_(t1.detach()[1:])
torch.cat(t2).sum().backward()
""",
    "set_ of what a graph leads to": """
t1 = torch.ones(2, requires_grad=True)
t2 = t1.clone()
with torch.no_grad():
    t1.set_(torch.ones(3))
t3 = torch.autograd.grad(t2.sum(), t1)
""",
    "set_ of what is saved, and used no more": """
t1 = torch.ones(3, requires_grad=True)
t2 = torch.full((3,), 2.0)
t3 = t1 * t2
t2.set_(torch.full((3,), 7.0)); t3.sum().backward()
""",
    "embedding_bag in the order of long ago": """
t1 = torch.ones(5, 2, requires_grad=True)
F.embedding_bag(t1, torch.tensor([0, 1, 2]), torch.tensor([0, 2])).sum().backward()
""",
    "a complex power of a negative number": """
t1 = torch.tensor([-2.0, 3.0], requires_grad=True)
t2 = torch.tensor([1 + 2j, 2 - 1j], requires_grad=True)
torch.pow(t1, t2).abs().sum().backward()
""",
    "what batch_norm leaves of equal numbers is rounding": """
t1 = torch.full((2, 3), 1.5)
t1.erfc_()
t2 = F.batch_norm(t1, None, None, training=True)
""",
    "a dimension that is stretched to three steps by nothing": """
t1 = torch.tensor([[1.0, 2.0]], requires_grad=True)
t2 = t1.expand(3, 2)
t3 = torch.tensor(2.0).expand(3)
t4 = t1[:, :1].expand(3, -1)
print(t2.stride(), t3.stride(), t4.stride())
t2[0]
(t2 * t4).sum().backward()
""",
    "hooks of a tensor run in the order in which they were put on": """
t1 = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
t2 = t1 * 1
t1.register_hook(lambda g: g * 2); t1.register_hook(lambda g: g + 1)
t2.register_hook(lambda g: print("one")); t2.retain_grad(); t2.register_hook(lambda g: g.abs()); t2.register_hook(lambda g: g - 3)
t2.sum().backward()
""",  # noqa: E501
    "a parameter counts with the tensor that it was made of": """
t1 = torch.tensor([1.0, -2.0, 0.5]) * 2
t2 = nn.Parameter(t1.detach())
t3 = (t2 * t2).sum()
t1.mul_(2)
print(t2._version)
t4 = nn.Parameter(t1.data)
t1.mul_(t4)
t3.backward()
""",
    "a slice with a step begins where it says": """
t1 = torch.arange(7.0, requires_grad=True)
t2 = t1 * 1
t3 = t2[1:-1:2]
t2[::3].mul_(t1[:5:2])
t3.sum().backward()
print(t3.tolist(), t3.storage_offset(), t3.stride())
""",
    "a threshold that is a complex number is left to torch, without a warning of NumPy's": """
t1 = torch.tensor([0.5, 2.0], requires_grad=True)
t2 = torch.threshold(t1, threshold=(1 + 0j), value=(1 + 0j))
t2.sum().backward()
""",
    "a mask's infinities say nothing about rounding, nor that there is none": """
import numpy as np
import torch.nn.functional as F
def waves(*shape):
    return torch.tensor(np.sin(np.arange(1, np.prod(shape) + 1) * 1.7).astype(np.float32).reshape(shape))
t1 = waves(2, 2, 3, 4).requires_grad_()
t2 = F.scaled_dot_product_attention(t1, t1 * 2, t1 + 1, waves(3, 3) > 0)
t2.view(-1).pow(2).sum().backward()
""",
    "where the most frequent number of a long row stands is left to torch": """
t1 = torch.zeros(40, 3).mode(0).indices
t2 = (torch.arange(50) // 5 % 3).mode().indices
t3 = torch.zeros(16).mode().indices
""",
}
