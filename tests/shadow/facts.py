"""What torch does, as small programs: each must hold on the running torch and on the shadow.

Helpers: ``leaf(*shape)`` ones that require grad, ``raises(function, text)``, ``warned(function)`` the
warnings, ``name(t)`` and ``nexts(t)`` the node's name and the names behind it, ``close(t, values)``,
``bumps(function)`` how far a version moves.
"""

FACTS = {
    "V01 every tensor counts its in-place changes from 0": """
t = torch.zeros(4); assert t._version == 0
t.add_(1); assert t._version == 1
""",
    "V02 base, views, detach and Parameter share one counter": """
b = torch.zeros(4)
others = [b.view(2, 2), b[:2], b[0], b.t(), b.detach(), b.view(2, 2)[0], b.view_as(b), nn.Parameter(b)]
b.add_(1); others[2].add_(1)
assert [o._version for o in others] == [2] * 8 and b._version == 2
""",
    "V03 .data has a counter of its own": """
b = torch.zeros(4); b.add_(1); d = b.data; assert d._version == 0
d.add_(1); assert (b._version, d._version, b[0].item()) == (1, 1, 2.0)
b.add_(1); assert d._version == 1
""",
    "V04 NumPy writes are not counted and from_numpy counts alone": """
b = torch.zeros(4); f = torch.from_numpy(b.numpy()); n = b.numpy(); n += 1
assert (b._version, f._version, b[0].item()) == (0, 0, 1.0)
b.add_(1); assert (b._version, f._version) == (1, 0)
""",
    "V05 set_ shares memory and keeps its own counter": """
b = torch.zeros(4); b.add_(1); s = torch.empty(0); s.set_(b)
assert (s._version, b._version) == (1, 1); b.add_(1); assert (s._version, b._version) == (1, 2)
assert s.data_ptr() == b.data_ptr()
""",
    "V06 clone starts anew, aliases go on": """
b = torch.zeros(4); b.add_(1)
assert [b.clone()._version, b.detach()._version, b[:1]._version, nn.Parameter(b)._version] == [0, 1, 1, 1]
""",
    "V07 assigning .data keeps the old counter": """
b = torch.zeros(4); d = b.detach(); d.data = torch.ones(4); d.add_(1)
assert (b._version, d._version, b[0].item()) == (1, 1, 0.0)
""",
    "V08 p.data = t swaps memory without a bump": """
p = nn.Parameter(torch.zeros(3)); p.data = torch.ones(3); assert p._version == 0
""",
    "V08 so does module.double()": """
m = nn.Linear(2, 2); w, v = m.weight, m.weight._version; m.double(); assert m.weight is w and w._version == v and w.dtype == torch.float64
""",  # noqa: E501
    "V09 a fresh Linear has version 1": """
assert (nn.Linear(2, 2).weight._version, nn.Linear(2, 2).bias._version) == (1, 1)
""",
    "V10 increment_version bumps": """
assert bumps(lambda t: torch.autograd.graph.increment_version(t)) == 1
""",
    "V10 and bumps can be hidden": """
a = leaf(3); h = a * 1; y = h ** 2
with torch.autograd._unsafe_preserve_version_counter(h): h.add_(1)
assert h._version == 0; y.sum().backward(); close(a.grad, [4.0] * 3)
""",
    "B01 every in-place method bumps by one": """
i = torch.tensor([0])
for change in [lambda t: t.add_(1), lambda t: t.__setitem__(0, 1.0), lambda t: t.__setitem__(slice(None), 1.0), lambda t: t.__setitem__(Ellipsis, torch.zeros(4)),
               lambda t: t.__setitem__(i, 1.0), lambda t: t.__setitem__(t > 0, 1.0), lambda t: t.__setitem__(slice(0, 0), 1.0), lambda t: t.copy_(torch.zeros(4)),
               lambda t: t.copy_(t), lambda t: t.zero_(), lambda t: t.fill_(1), lambda t: t.sub_(0), lambda t: t.normal_(), lambda t: t.uniform_(), lambda t: t.clamp_(0, 1),
               lambda t: t.relu_(), lambda t: F.relu(t, inplace=True), lambda t: F.silu(t, inplace=True), lambda t: t.masked_fill_(t > 0, 1.0),
               lambda t: t.index_add_(0, i, torch.ones(1)), lambda t: t.index_copy_(0, i, torch.ones(1)), lambda t: t.index_put_((i,), torch.ones(1)),
               lambda t: t.index_fill_(0, i, 1.0), lambda t: t.scatter_(0, i, torch.ones(1)), lambda t: t.scatter_add_(0, i, torch.ones(1)),
               lambda t: t.addcmul_(torch.ones(4), torch.ones(4)), lambda t: t.lerp_(torch.ones(4), 0.5), lambda t: t.unsqueeze_(0), lambda t: t.resize_(8),
               lambda t: t.set_(torch.ones(2)), lambda t: nn.init.normal_(t), lambda t: t.pow_(2), lambda t: t.sqrt_()]:
    assert bumps(change) == 1
for change in [lambda t: t.t_(), lambda t: t.squeeze_(), lambda t: t.transpose_(0, 1)]:
    assert bumps(change, torch.ones(2, 2)) == 1
""",  # noqa: E501
    "B01 out=, lists, dropout and layouts too": """
i = torch.tensor([0])
for change in [lambda t: t.__iadd__(1), lambda t: F.dropout(t, 0.5, True, True), lambda t: t.put_(i, torch.ones(1)), lambda t: torch.add(torch.ones(4), 1, out=t), lambda t: t.as_strided_((2,), (1,)),
               lambda t: torch._foreach_add_([t], 1.0), lambda t: torch._foreach_zero_([t]), lambda t: t.__setitem__(t > 0, torch.zeros(4))]:
    assert bumps(change) == 1
for change in [lambda t: t.fill_diagonal_(1), lambda t: t.tril_()]:
    assert bumps(change, torch.ones(2, 2)) == 1
""",  # noqa: E501
    "B02 reads and flags do not bump": """
for change in [lambda t: t.detach_(), lambda t: t.requires_grad_(), lambda t: t.resize_(4), lambda t: t.share_memory_(), lambda t: t.tolist(),
               lambda t: t.data.add_(1), lambda t: F.dropout(t, 0.5, False, True), lambda t: t.numpy().__iadd__(1)]:
    assert bumps(change) == 0
""",  # noqa: E501
    "B03 augmented indexing bumps twice": """
def row(t): t[0] += 1
def rows(t): t[1:] += 1
def some(t): t[[0, 1]] += 1
assert [bumps(row), bumps(rows), bumps(some)] == [2, 2, 1]
""",
    "B04 no_grad and inference_mode do not hide bumps": """
t = torch.ones(4)
with torch.no_grad(): t.add_(1)
assert t._version == 1
with torch.inference_mode(): t.add_(1)
assert t._version == 2
""",
    "B05 a step bumps parameters with gradients, not the gradients": """
for make in (lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1), lambda p: torch.optim.Adam(p), lambda p: torch.optim.SGD(p, lr=0.0)):
    p = nn.Parameter(torch.ones(3)); p.grad = torch.ones(3); make([p]).step()
    assert (p._version, p.grad._version) == (1, 0)
p = nn.Parameter(torch.ones(3)); torch.optim.SGD([p], lr=0.1).step(); assert p._version == 0
""",  # noqa: E501
    "B05 how far each optimizer moves the version": """
O = torch.optim
for make, bump in [(lambda p: O.SGD(p, lr=0.1), 1), (lambda p: O.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1), 1), (lambda p: O.SGD(p, lr=0.1, foreach=True), 1), (lambda p: O.Adam(p), 1), (lambda p: O.Adam(p, foreach=True), 1),
                   (lambda p: O.AdamW(p), 2), (lambda p: O.RMSprop(p), 1), (lambda p: O.Adagrad(p), 1), (lambda p: O.NAdam(p), 2)]:
    p = nn.Parameter(torch.ones(3)); p.grad = torch.ones(3); make([p]).step(); assert (p._version, p.grad._version) == (bump, 0)
""",  # noqa: E501
    "B06 a fused step does not bump": """
for make in (lambda p: torch.optim.SGD([p], lr=0.1, fused=True), lambda p: torch.optim.Adam([p], fused=True)):
    p = nn.Parameter(torch.ones(3)); p.grad = torch.ones(3); make(p).step(); assert (p._version, p.grad._version) == (0, 0) and p[0].item() < 1
p = nn.Parameter(torch.ones(3)); loss = (p ** 2).sum(); p.grad = torch.ones(3); torch.optim.SGD([p], lr=1.0, fused=True).step()
p.grad = None; loss.backward(); close(p.grad, [0.0] * 3)
""",  # noqa: E501
    "B07 clipping bumps the gradient": """
p = nn.Parameter(torch.ones(3)); p.grad = torch.ones(3); nn.utils.clip_grad_norm_([p], 1.0); assert (p.grad._version, p._version) == (1, 0)
o = torch.optim.SGD([p], lr=0.1); g = p.grad; o.zero_grad(set_to_none=False); assert p.grad is g and g._version == 2
o.zero_grad(); assert p.grad is None
""",  # noqa: E501
    "B08 batch_norm writes its running statistics without a bump": """
bn = nn.BatchNorm1d(2); kept = [bn.running_mean, bn.running_var, bn.num_batches_tracked]; before = [b._version for b in kept]
bn(torch.tensor([[1.0, 2.0], [3.0, 5.0]])); assert [b._version - v for b, v in zip(kept, before)] == [0, 0, 1] and bn.running_mean.abs().sum() > 0
""",  # noqa: E501
    "B09 max_norm and load_state_dict write in place": """
e = nn.Embedding(4, 3, max_norm=0.1); v = e.weight._version; e(torch.tensor([0, 1])); assert e.weight._version - v == 1
m = nn.Linear(2, 2); v, w = m.weight._version, m.weight; m.load_state_dict(nn.Linear(2, 2).state_dict()); assert m.weight is w and w._version == v + 1
m.load_state_dict(nn.Linear(2, 2).state_dict(), assign=True); assert m.weight is not w
""",  # noqa: E501
    "W01 these are views": """
def kind(v, b): return "same" if v is b else "copy" if v.untyped_storage().data_ptr() != b.untyped_storage().data_ptr() else "view" if v._is_view() else "alias"
for look in (lambda b: b.view(6), lambda b: b.view_as(b), lambda b: b[0], lambda b: b[0, 0], lambda b: b[:, 1:], lambda b: b[...], lambda b: b[:], lambda b: b[None], lambda b: b[torch.tensor(0)], lambda b: b.t(), lambda b: b.T,
             lambda b: b.mT, lambda b: b.adjoint(), lambda b: b.permute(1, 0), lambda b: b.movedim(0, 1), lambda b: b.swapaxes(0, 1), lambda b: b.squeeze(), lambda b: b.unsqueeze(0), lambda b: b.expand(2, 2, 3), lambda b: b.expand(2, 3),
             lambda b: b.expand_as(torch.ones(2, 2, 3)), lambda b: b.broadcast_to(2, 2, 3), lambda b: b.narrow(0, 0, 1), lambda b: b.unfold(1, 2, 1), lambda b: b.diagonal(), lambda b: b.as_strided((2,), (1,)), lambda b: b.split(1)[0],
             lambda b: b.chunk(2)[0], lambda b: b.unbind()[0], lambda b: next(iter(b)), lambda b: b.tensor_split(2)[0], lambda b: b.hsplit(3)[0], lambda b: b.unflatten(1, (3, 1)), lambda b: b.ravel(), lambda b: b.flatten(), lambda b: b.reshape(3, 2),
             lambda b: b.reshape(2, 3), lambda b: torch.atleast_3d(b), lambda b: torch.Tensor(b), lambda b: torch.einsum("ij->ji", b)):
    b = torch.arange(6.0).reshape(2, 3).clone(); v = look(b); assert kind(v, b) == "view"; b.add_(1); assert (v._version, b._version) == (1, 1)
""",  # noqa: E501
    "W02 these are copies": """
def kind(v, b): return "same" if v is b else "copy" if v.untyped_storage().data_ptr() != b.untyped_storage().data_ptr() else "view" if v._is_view() else "alias"
for copy in (lambda b: b.clone(), lambda b: b[[0]], lambda b: b[torch.tensor([0])], lambda b: b[b > 0], lambda b: b[0, [1]], lambda b: b.repeat(1, 1), lambda b: b.tile(1), lambda b: b.index_select(0, torch.tensor([0])),
             lambda b: b.gather(0, torch.zeros(1, 3, dtype=torch.long)), lambda b: b.take(torch.tensor([0])), lambda b: b.flip(0), lambda b: b.roll(1), lambda b: torch.cat([b]), lambda b: torch.stack([b]), lambda b: torch.where(b > 0, b, b),
             lambda b: b.tril(), lambda b: b.double(), lambda b: b.t().reshape(6), lambda b: b.t().flatten(), lambda b: b.t().contiguous(), lambda b: b.clamp(-9, 99), lambda b: F.pad(b, (0, 0)), lambda b: torch.tensor(b), lambda b: b.sort()[0]):
    b = torch.arange(6.0).reshape(2, 3).clone(); assert kind(copy(b), b) == "copy"
""",  # noqa: E501
    "W03 these return the very object": """
for same in (lambda b: b.contiguous(), lambda b: b.to(torch.float32), lambda b: b.float(), lambda b: b.cpu(), lambda b: b.type_as(b), lambda b: b.real, lambda b: b.conj(), lambda b: torch.as_tensor(b), lambda b: torch.asarray(b),
             lambda b: F.dropout(b, 0.5, False), lambda b: F.dropout(b, 0.0, True), lambda b: nn.Identity()(b), lambda b: b.positive(), lambda b: nn.Flatten()(b), lambda b: b.sum_to_size(2, 3), lambda b: torch.broadcast_tensors(b, torch.ones(1))[0]):
    b = torch.arange(6.0).reshape(2, 3).clone(); assert same(b) is b
r = torch.ones(3); assert r.flatten() is r
""",  # noqa: E501
    "W04 these share memory without being views": """
for alias in (lambda b: b.detach(), lambda b: b.data, lambda b: nn.Parameter(b), lambda b: b.view(torch.int32)):
    b = torch.arange(6.0).reshape(2, 3).clone(); v = alias(b); assert v is not b and v.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and not v._is_view()
""",  # noqa: E501
    "W05 the base is the root": """
c = leaf(2, 3) * 1; d = c.t(); assert d._is_view() and d._base is c and d.t()[0]._base is c and c._base is None
""",
    "W06 strides, offsets and the view error": """
b = torch.arange(6.0).view(2, 3)
raises(lambda: b.t().view(6), "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead.")
raises(lambda: b.view(4), "shape '[4]' is invalid for input of size 6")
assert (b.t().stride(), b.expand(4, 2, 3).stride(), b[:, 1:].storage_offset()) == ((1, 3), (0, 3, 1), 1)
assert torch.ones(2, 2, 6).permute(1, 2, 0).view(12, 2).shape == (12, 2)
""",  # noqa: E501
    "W07 meshgrid gives stride-0 views": """
a, y = torch.meshgrid(torch.arange(2.0), torch.arange(3.0), indexing="ij"); assert a._is_view() and 0 in a.stride()
""",
    "H01 += keeps the object and replaces grad_fn": """
h = leaf(3) * 2; old, before = h.grad_fn, id(h); u = h * 3; h += 1
assert id(h) == before and h.grad_fn is not old and (name(h), nexts(h)[0]) == ("AddBackward0", "MulBackward0")
assert u.grad_fn.next_functions[0][0] is old and h.grad_fn.next_functions[0][0] is old
""",
    "H02 a write through a view rewrites the base's history": """
for window in (lambda h: h.view(6), lambda h: h[0], lambda h: h[:, 1:], lambda h: h.t(), lambda h: h.diagonal(), lambda h: h.reshape(3, 2), lambda h: h[None], lambda h: h.t()[0], lambda h: h[:], lambda h: h.tensor_split(2)[0]):
    h = leaf(2, 3) * 1; v = window(h); v.mul_(2)
    assert (name(h), name(v), nexts(h)[0]) == ("CopySlices", "AsStridedBackward0", "MulBackward0") and v.grad_fn.next_functions[0][0] is h.grad_fn
""",  # noqa: E501
    "H03 a view's grad_fn is made anew when its base has changed": """
h = leaf(4) * 1; v = h[:2]; assert name(v) == "SliceBackward0"
h.mul_(3); assert (name(v), nexts(v)[0]) == ("AsStridedBackward0", "MulBackward0")
a = leaf(4); h = a * 1; v = h[:2]
with torch.no_grad(): h.mul_(3)
assert (name(v), v._version) == ("AsStridedBackward0", 1)
v.sum().backward(); close(a.grad, [1.0, 1, 0, 0])
""",
    "H04 what each form of assignment leaves behind": """
w = leaf(3)
h = leaf(2, 3) * 2; h[0] = w; assert (name(h), nexts(h)) == ("CopySlices", ["MulBackward0", "AccumulateGrad"])
h = leaf(2, 3) * 2; h[0] = 1.0; assert (name(h), nexts(h)) == ("CopySlices", ["MulBackward0"] if since(2, 15) else ["MulBackward0", None])
h = leaf(2, 3) * 2; h[:] = w; assert name(h) == "CopyBackwards"
h = leaf(2, 3) * 2; h[h > 0] = 1.0; assert name(h) == ("MaskedFillBackward0" if since(2, 15) else "IndexPutBackward0")
h = leaf(2, 3) * 2; h[[0]] = w; assert name(h) == "IndexPutBackward0"
""",  # noqa: E501
    "H05 a plain buffer that receives a gradient value joins the graph": """
w = leaf(2); b = torch.zeros(3); b[0] = w[0]; assert b.requires_grad and not b.is_leaf and (name(b), b._version) == ("CopySlices", 1)
b = torch.zeros(3); b.add_(leaf(3)); assert name(b) == "AddBackward0"
d = torch.zeros(3); e = d.detach(); e.add_(leaf(3)); assert e.requires_grad and not d.requires_grad and d._version == 1
""",  # noqa: E501
    "H06 a CopySlices that saved its result is broken by any later write": """
a = leaf(4); h = a * 1; h[:2].exp_(); h.sum().backward(); close(a.grad, [2.7183, 2.7183, 1, 1])
h = leaf(4) * 1; h[:2].exp_(); h[3] = 0; raises(lambda: h.sum().backward(), "[torch.FloatTensor [2]], which is output 0 of Exp, is at version 2; expected version 1 instead")
h = leaf(4) * 1; h[:2] = h[:2].exp(); h[3] = 0; h.sum().backward()
""",  # noqa: E501
    "H07 zero_ cuts with zeros": """
a = leaf(3); h = a * 1; h.zero_(); assert name(h) == "ZeroBackward0"; h.sum().backward(); close(a.grad, [0.0] * 3)
""",
    "H08 detach_ in place": """
h = leaf(3) * 1; h.detach_(); assert (h.requires_grad, h.grad_fn, h._version) == (False, None, 0)
h = leaf(3) * 1; y = h ** 2; h.detach_(); raises(lambda: y.sum().backward(), "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().")
a = leaf(3); h = a.exp(); s = h.sum(); h.detach_(); s.backward(); close(a.grad, [2.7183] * 3)
""",  # noqa: E501
    "H09 several views may be edited in turn": """
h = leaf(3) * 1; v, u = h.view(3), h.t(); v.mul_(2); u.add_(1); assert (h._version, v._version, u._version) == (2, 2, 2)
""",
    "E01 no in-place change of a leaf": """
for change in (lambda x: x.add_(1), lambda x: x.zero_(), lambda x: x.t_(), lambda x: x.copy_(torch.ones(2, 2)), lambda x: x.normal_(), lambda x: x.__setitem__(slice(None), 1.0), lambda x: x.__setitem__(Ellipsis, 1.0),
               lambda x: x.__setitem__(x > 0, 1.0), lambda x: x.__setitem__(torch.tensor([0]), 1.0), lambda x: F.relu(x, inplace=True), lambda x: x.set_(torch.ones(3)), lambda x: x.unsqueeze_(0)):
    assert raises(lambda: change(leaf(2, 2))) == "a leaf Variable that requires grad is being used in an in-place operation."
""",  # noqa: E501
    "E02 nor of a view of a leaf": """
for change in (lambda x: x.__setitem__(0, 1.0), lambda x: x.__setitem__((slice(None), 0), 1.0), lambda x: x.view(4).add_(1), lambda x: x[0].mul_(2), lambda x: x.tensor_split(2)[0].add_(1)):
    assert raises(lambda: change(leaf(2, 2))) == "a view of a leaf Variable that requires grad is being used in an in-place operation."
""",  # noqa: E501
    "E03 both are allowed under no_grad": """
x = leaf(2, 2)
with torch.no_grad():
    x.add_(1); x[0] = 5.0; x.view(4).mul_(2)
assert (x._version, x.is_leaf, x.requires_grad) == (3, True, True); x.detach_(); assert not x.requires_grad
""",
    "E04 outputs of split, chunk and unbind may not be changed": """
for title, pieces in dict(Unbind=lambda h: h.unbind(0), Split=lambda h: h.split(1), SplitWithSizes=lambda h: h.split([1, 1])).items():
    for base in (leaf(2, 2) * 1, leaf(2, 2)):
        o = pieces(base); raises(lambda: o[0].add_(1), f"Output 0 of {title} is a view and is being modified inplace. This view is the output of a function that returns multiple views.")
    h = leaf(2, 2) * 1; o = pieces(h); h.add_(1)
    raises(lambda: o[0] * 2, f"Output 0 of {title} is a view and its base or another view of its base has been modified inplace.")
raises(lambda: next(iter(leaf(2, 2) * 1)).add_(1), "Output 0 of Unbind"); raises(lambda: (leaf(4) * 1).chunk(2)[1].add_(1), "Output 1 of Split is a view")
raises(lambda: (leaf(2, 2) * 1).unbind()[0].view(2).mul_(2), "Output 0 of View is a view and is being modified inplace.")
""",  # noqa: E501
    "E05 under no_grad the write succeeds and the next use fails": """
h = leaf(2, 2) * 1; o = h.unbind(0)
with torch.no_grad(): o[0].add_(1)
raises(lambda: o[0] * 1, "its base or another view of its base has been modified inplace.")
t = torch.ones(2, 2); t.unbind()[0].add_(1); assert t._version == 1
raises(lambda: torch.ones(2, 2).unbind()[0].add_(leaf(2)), "A view was created in no_grad mode and is being modified inplace with grad mode enabled. This view is the output")
""",  # noqa: E501
    "E06 tensor_split gives ordinary slices, unsafe_split counts alone": """
for piece in (lambda h: h.tensor_split(2)[0], lambda h: h.hsplit(2)[0], lambda h: h.vsplit(2)[0]):
    h = leaf(2, 2) * 1; piece(h).add_(1); assert name(h) == "CopySlices"
h = leaf(2, 2) * 1; h.unsafe_split(1)[0].add_(1); assert (name(h), h._version) == ("MulBackward0", 0)
""",
    "E07 a view made under no_grad may not be written in grad mode": """
for make in (lambda: leaf(3), lambda: leaf(3) * 1):
    x = make()
    with torch.no_grad(): v = x[:2]
    raises(lambda: v.mul_(2), "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that this use case is ambiguous")
    with torch.no_grad(): v.mul_(2)
b = torch.ones(3)
with torch.no_grad(): v = b[:2]
v.add_(1); raises(lambda: v.add_(leaf(2)), "A view was created in no_grad mode")
""",  # noqa: E501
    "E08 resize_, detach_ of a view, a result that does not fit": """
raises(lambda: (leaf(3) * 1).resize_(4), "cannot resize variables that require grad")
raises(lambda: (leaf(3) * 1).view(3).detach_(), "Can't detach views in-place. Use detach() instead.")
raises(lambda: torch.zeros(3).add_(torch.ones(2, 3)), "output with shape [3] doesn't match the broadcast shape [2, 3]")
""",
    "E08 out= and gradients exclude each other": """
raises(lambda: torch.add(leaf(3), 1, out=torch.empty(3)), "add(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.")
o = torch.empty(3)
with torch.no_grad(): torch.add(leaf(3), 1, out=o)
assert o.tolist() == [2.0] * 3
""",  # noqa: E501
    "N01 no_grad results are plain, in-place keeps the history": """
x = leaf(2)
with torch.no_grad(): y = x * 2
assert (y.requires_grad, y.is_leaf, x.detach().requires_grad) == (False, True, False)
h = leaf(2) * 1
with torch.no_grad(): h.add_(1)
assert (h.requires_grad, name(h), h._version) == (True, "MulBackward0", 1)
""",
    "N02 inference tensors have no counter": """
with torch.inference_mode():
    x = torch.ones(2); w = leaf(2); y = w * 2
assert x.is_inference() and w.requires_grad and not y.requires_grad
raises(lambda: x._version, "Inference tensors do not track version counter.")
raises(lambda: x.add_(1), "Inplace update to inference tensor outside InferenceMode is not allowed.")
raises(lambda: x * leaf(2), "Inference tensors cannot be saved for backward.")
raises(lambda: x.requires_grad_(), "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
assert (x + leaf(2)).requires_grad and (x.clone().is_inference(), x.clone()._version, x.view(2).is_inference()) == (False, 1, True)
""",  # noqa: E501
    "N03 a view made in inference mode may not be written later": """
h = leaf(2) * 1
with torch.inference_mode():
    h.add_(1); v = h.view(2)
assert (h._version, v.is_inference(), v._is_view()) == (1, False, True)
raises(lambda: v.add_(1), "A view was created in inference mode and is being modified inplace in normal mode.")
""",
    "N04 a view made under no_grad requires grad and leads nowhere": """
x = leaf(4)
with torch.no_grad():
    views = [x[0], x[:2], x.view(4), x.t(), x.reshape(4), x.expand(2, 4)]; copies = [x[[0]], x.detach(), x * 1]
assert [(v.requires_grad, v.grad_fn, v.is_leaf) for v in views] == [(True, None, True)] * 6 and not any(c.requires_grad for c in copies)
y = views[1] * 3; assert nexts(y) == [None, None]; y.sum().backward(); assert (x.grad, views[1].grad) == (None, None)
""",  # noqa: E501
    "N05 and using it after a change of its base raises": """
x = leaf(2)
with torch.no_grad():
    s = x[0]; x.mul_(3)
raises(lambda: s * 2, "A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad mode enabled.")
with torch.no_grad(): assert (s * 2).item() == 6.0
b = torch.ones(2)
with torch.no_grad(): s = b[0]
b.mul_(3); assert (s * 2).item() == 6.0
""",  # noqa: E501
    "N05 printing says so, and detaching is fine": """
x = leaf(2)
with torch.no_grad():
    s = x[0]; x.mul_(3)
assert "grad_fn=<Invalid>" in str(s) and (s.item(), s.detach().item()) == (3.0, 3.0)
""",
    "S01 a saved input is the object, a saved output is not": """
x = leaf(3); y = x.pow(2); assert y.grad_fn._saved_self is x
z = x.exp(); s = z.grad_fn._saved_result; assert s is not z and s.data_ptr() == z.data_ptr()
""",
    "S02 who modified what, in the message": """
text = "one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [3]]{} is at version 1; expected version 0 instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False)."
h = leaf(3) * 1; y = h ** 2; h.add_(1); assert raises(lambda: y.sum().backward()) == text.format(", which is output 0 of Add,")
y = leaf(3).exp(); y.add_(1); assert raises(lambda: y.sum().backward()) == text.format(", which is output 0 of Exp,")
w = leaf(3); y = w ** 2
with torch.no_grad(): w.add_(1)
assert raises(lambda: y.sum().backward()) == text.format("")
""",  # noqa: E501
    "S03 changed through a view, or a saved view of a changed base": """
h = leaf(3) * 1; y = h ** 2; h[0].add_(1); raises(lambda: y.sum().backward(), "which is output 0 of torch::autograd::CopySlices, is at version 1; expected version 0")
first, second = nn.Linear(3, 2), nn.Linear(2, 1); q = second(first(torch.ones(1, 3)))
with torch.no_grad(): second.weight.add_(1)
raises(lambda: q.sum().backward(), "[torch.FloatTensor [2, 1]], which is output 0 of AsStrided, is at version 2; expected version 1 instead")
""",  # noqa: E501
    "S04 types, index and mask in the message": """
y = torch.ones(3, dtype=torch.float64, requires_grad=True).exp(); y.add_(1); raises(lambda: y.sum().backward(), "[torch.DoubleTensor [3]], which is output 0 of Exp")
y = torch.ones(3, dtype=torch.bfloat16, requires_grad=True).exp(); y.add_(1); raises(lambda: y.sum().backward(), "[CPUBFloat16Type [3]], which is output 0 of Exp")
i = torch.tensor([0, 1]); y = leaf(3)[i]; i.add_(1); raises(lambda: y.sum().backward(), "[torch.LongTensor [2]] is at version 1")
m = torch.tensor([True, False, True]); y = leaf(3).masked_fill(m, 0.0); m.logical_not_(); raises(lambda: y.sum().backward(), "[CPUBoolType [3]] is at version 1")
y = leaf(1)[0].exp(); y.add_(1); raises(lambda: y.backward(), "[torch.FloatTensor []], which is output 0 of Exp")
""",  # noqa: E501
    "S04 complex and half types": """
y = torch.ones(3, dtype=torch.complex64, requires_grad=True).exp(); y.add_(1); raises(lambda: y.sum().abs().backward(), "[CPUComplexFloatType [3]], which is output 0 of Exp")
y = torch.ones(3, dtype=torch.float16, requires_grad=True).exp(); y.add_(1); raises(lambda: y.sum().backward(), "[torch.HalfTensor [3]], which is output 0 of Exp")
""",  # noqa: E501
    "S05 nodes that backward does not reach are not checked": """
a = leaf(3); h = a * 1; unused = h ** 2; h.add_(1); h.sum().backward(); close(a.grad, [1.0] * 3)
""",
    "S06 the check is per storage": """
h = leaf(4) * 1; y = h[:2] ** 2; h[3] = 0.0; raises(lambda: y.sum().backward(), "has been modified by an inplace operation")
""",  # noqa: E501
    "S07 in-place operations clone the self they need": """
for change in (lambda h: h.log_(), lambda h: h.sin_(), lambda h: h.pow_(2), lambda h: h.clamp_(0, 2), lambda h: h.mul_(leaf(3)), lambda h: h.div_(leaf(3)), lambda h: F.silu(h, inplace=True), lambda h: F.hardtanh(h, inplace=True), lambda h: h.abs_()):
    h = leaf(3) * 2; where = h.data_ptr(); change(h); assert h.grad_fn._saved_self.data_ptr() != where; h.add_(1); h.sum().backward()
for change in (lambda h: h.relu_(), lambda h: h.sigmoid_(), lambda h: h.tanh_(), lambda h: h.exp_(), lambda h: h.sqrt_(), lambda h: F.leaky_relu_(h), lambda h: F.elu_(h)):
    h = leaf(3) * 2; change(h); assert h.grad_fn._saved_result.data_ptr() == h.data_ptr(); h.mul_(1); raises(lambda: h.sum().backward(), "is at version 2; expected version 1")
""",  # noqa: E501
    "S07 what is cloned and what is kept": """
for change in (lambda h: h.log_(), lambda h: h.sin_(), lambda h: h.pow_(2), lambda h: h.clamp_(0, 2), lambda h: h.mul_(leaf(3)), lambda h: h.div_(leaf(3)), lambda h: F.silu(h, inplace=True), lambda h: F.hardtanh(h, inplace=True), lambda h: h.abs_()):
    h = leaf(3) * 2; where = h.data_ptr(); change(h); assert h.grad_fn._saved_self.data_ptr() != where; h.add_(1); h.sum().backward()
for change in (lambda h: h.relu_(), lambda h: h.sigmoid_(), lambda h: h.tanh_(), lambda h: h.exp_(), lambda h: h.sqrt_(), lambda h: F.leaky_relu_(h), lambda h: F.elu_(h)):
    h = leaf(3) * 2; change(h); assert h.grad_fn._saved_result.data_ptr() == h.data_ptr(); h.mul_(1); raises(lambda: h.sum().backward(), "is at version 2; expected version 1")
""",  # noqa: E501
    "S08 operations on themselves": """
h = leaf(3) * 2; h.mul_(h); raises(lambda: h.sum().backward(), "which is output 0 of Mul, is at version 1; expected version 0")
for fine in (lambda h: h.add_(h), lambda h: h.mul_(h.sum()), lambda h: h.div_(h.sum()), lambda h: h.sub_(h.mean()), lambda h: h.sub_(h.max(dim=0).values), lambda h: h.mul_(h[0].clone())):
    h = leaf(3) * 2; fine(h); h.sum().backward()
for broken in (lambda h: h.div_(h.max()), lambda h: h.div_(h.norm()), lambda h: h.div_(h.std()), lambda h: h.div_(h.abs().sum())):
    h = torch.tensor([1.0, 2.0, 4.0], requires_grad=True) * 2; broken(h); raises(lambda: h.sum().backward(), "has been modified by an inplace operation")
h = leaf(3) * 2; raises(lambda: h.mul_(h[0]), "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location.")
""",  # noqa: E501
    "S08 which self-references are fine and which are not": """
for change in (lambda h: h.add_(h), lambda h: h.mul_(h.sum()), lambda h: h.div_(h.sum()), lambda h: h.sub_(h.mean()), lambda h: h.sub_(h.max(dim=0).values), lambda h: h.mul_(h[0].clone())):
    h = leaf(3) * 2; change(h); h.sum().backward()
for change in (lambda h: h.mul_(h), lambda h: h.div_(h.max()), lambda h: h.div_(h.norm()), lambda h: h.div_(h.std()), lambda h: h.div_(h.abs().sum())):
    h = torch.tensor([0.5, 0.25, 0.75], requires_grad=True) * 2; change(h); raises(lambda: h.sum().backward(), "is at version 1; expected version 0")
h = leaf(3) * 2; raises(lambda: h.mul_(h[0]), "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location.")
""",  # noqa: E501
    "S09 saved-tensor hooks switch the check off": """
graph = torch.autograd.graph
for around in (lambda: graph.saved_tensors_hooks(lambda t: t, lambda t: t), lambda: graph.save_on_cpu()):
    a = leaf(3); h = a * 1
    with around(): y = h ** 2
    h.add_(1); y.sum().backward(); close(a.grad, [4.0] * 3)
a = leaf(3); h = a * 1
with graph.allow_mutation_on_saved_tensors():
    y = h ** 2; h.add_(1); y.sum().backward()
close(a.grad, [2.0] * 3)
""",
    "S10 .data and p.data = are not noticed": """
a = leaf(3); y = a.exp(); y.data.zero_(); y.sum().backward(); close(a.grad, [0.0] * 3)
y = leaf(3).exp(); y.detach().zero_(); raises(lambda: y.sum().backward(), "has been modified by an inplace operation")
p = leaf(3); s = (p ** 2).sum(); p.data = torch.zeros(3); s.backward(); close(p.grad, [0.0] * 3)
""",
    "S10 detach is seen, .data = is not": """
a = leaf(3); y = a.exp(); y.detach().zero_(); raises(lambda: y.sum().backward(), "is at version 1; expected version 0")
p = leaf(3); loss = (p ** 2).sum(); p.data = torch.zeros(3); loss.backward(); close(p.grad, [0.0] * 3)
""",
    "S11 running statistics change without being counted": """
m, v = torch.zeros(3), torch.ones(3); i = torch.tensor([[0.1, 0.2, 0.7], [0.9, 0.4, 0.3]], requires_grad=True)
y = F.batch_norm(i, m, v, training=False); F.batch_norm(torch.tensor([[50.0, 1, 2], [3, 40, 5]]), m, v, training=True, momentum=0.9)
assert (m._version, v._version) == (0, 0) and m[0].item() > 1; y.sum().backward(); assert i.grad[0, 0].item() < 0.5
""",  # noqa: E501
    "S12 anomaly mode changes the hint and warns": """
def fail():
    with torch.autograd.set_detect_anomaly(True):
        y = leaf(3).exp(); y.add_(1)
        raises(lambda: y.sum().backward(), "is at version 1; expected version 0 instead. Hint: the backtrace further above shows the operation that failed to compute its gradient. The variable in question was changed in there or anywhere later. Good luck!")
assert any("Error detected in ExpBackward0. Traceback of forward call that caused the error:" in w for w in warned(fail))
""",  # noqa: E501
    "S13 torch's own vander breaks its backward": """
raises(lambda: torch.vander(leaf(3)).sum().backward(), "which is output 0 of AsStrided, is at version ")
""",
    "M01 checkpoint checks its inputs and nothing else": """
from torch.utils.checkpoint import checkpoint
for reentrant in (False, True):
    h = leaf(3) * 1; y = checkpoint(lambda z: z.exp().sin(), h, use_reentrant=reentrant); h.add_(1); raises(lambda: y.sum().backward(), "is at version 1; expected version 0")
x, s = leaf(3), torch.full((3,), 2.0); y = checkpoint(lambda z: z * s, x, use_reentrant=False); s.mul_(100); y.sum().backward(); close(x.grad, [200.0] * 3)
made = []; told = warned(lambda: made.append(checkpoint(nn.Linear(3, 2), torch.ones(1, 3), use_reentrant=True)))
assert any("None of the inputs have requires_grad=True. Gradients will be None" in w for w in told) and not made[0].requires_grad
""",  # noqa: E501
    "M04 in training batch_norm keeps the running statistics without using them": """
m, v = torch.zeros(3), torch.ones(3); i = torch.tensor([[0.1, 0.2, 0.7], [0.9, 0.4, 0.3]], requires_grad=True)
y = F.batch_norm(i, m, v, training=True); F.batch_norm(i, m, v, training=True); y.sum().backward()
""",
    "F01 a second backward needs what the first has freed": """
for make in (lambda a: (a ** 2).sum(), lambda a: (a * 2).sum(), lambda a: a.exp().sum(), lambda a: a[[0, 1]].sum(), lambda a: F.linear(a, torch.ones(1, 3)).sum()):
    s = make(leaf(3)); s.backward(); raises(lambda: s.backward(), "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed).")
y = leaf(3).exp(); y.sum().backward(); raises(lambda: y.grad_fn._saved_result, "Trying to backward through the graph a second time")
""",  # noqa: E501
    "F02 nodes that saved nothing run again": """
for make in (lambda a: (a + 2).sum(), lambda a: a.view(3, 1).expand(3, 2).t().sum(), lambda a: a[0] + a[1], lambda a: torch.cat([a, a]).sum(), lambda a: (-a).mean(), lambda a: a.cumsum(0)[1:].sum(), lambda a: a.repeat(2).flip(0).sum()):
    s = make(leaf(3)); s.backward(); s.backward()
""",  # noqa: E501
    "F03 two losses that share a node": """
a = leaf(3); h = a.exp(); one, two = h.sum(), (h * 2).sum(); one.backward(); raises(lambda: two.backward(), "a second time")
a = leaf(3); h = a.exp(); one, two = h.sum(), (h * 2).sum(); one.backward(retain_graph=True); two.backward(); close(a.grad, [8.15485] * 3)
""",  # noqa: E501
    "F04 only what leads to the inputs runs, but then it is freed": """
a = leaf(3); h = a.exp(); torch.autograd.grad(h.sum(), h); h.sum().backward()
b = leaf(3); s = (a * b).sum(); torch.autograd.grad(s, a); raises(lambda: s.backward(), "a second time")
""",
    "F05 what cannot be differentiated": """
raises(lambda: (leaf(3) * 2).backward(), "grad can be implicitly created only for scalar outputs")
for plain in (torch.ones(3).sum(), leaf(3).argmax()): raises(lambda: plain.backward(), "element 0 of tensors does not require grad and does not have a grad_fn")
(leaf(1) * 2).backward()
raises(lambda: (leaf(3) * 2).backward(torch.ones(2)), "Mismatch in shape: grad_output[0] has a shape of torch.Size([2]) and output[0] has a shape of torch.Size([3]).")
""",  # noqa: E501
    "F06 autograd.grad": """
raises(lambda: torch.autograd.grad(leaf(3).sum(), leaf(3)), "The differentiated Tensor at index 0 appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior.")
raises(lambda: torch.autograd.grad(leaf(3).sum(), torch.ones(3)), "One of the differentiated Tensors does not require grad")
a, b = leaf(3), leaf(3); assert torch.autograd.grad(a.sum(), (a, b), allow_unused=True)[1] is None
close(torch.autograd.grad(a.sum(), (a, b), materialize_grads=True)[1], [0.0] * 3); assert a.grad is None
""",  # noqa: E501
    "F07 a backward that fails may have filled some gradients": """
a, b = leaf(3), leaf(3); h = a * 1; y = h ** 2; h.add_(1); raises(lambda: (y.sum() + (b * 2).sum()).backward(), "modified"); assert a.grad is None; close(b.grad, [2.0] * 3)
""",  # noqa: E501
    "F08 newest nodes first": """
order = []; a = leaf(3); p = a * 1; p.register_hook(lambda g: order.append("first")); q = a * 1; q.register_hook(lambda g: order.append("second"))
(p + q).sum().backward(); assert order == ["second", "first"]
""",  # noqa: E501
    "A01 later gradients are added in place": """
a = leaf(3); (a * 1).sum().backward(); g, v = a.grad, a.grad._version; (a * 1).sum().backward()
assert a.grad is g and g._version == v + 1 and not g.requires_grad; close(g, [2.0] * 3)
""",
    "A02 with create_graph every backward makes a new .grad": """
def twice():
    a = leaf(3); (a ** 2).sum().backward(create_graph=True); g = a.grad; (a ** 2).sum().backward(create_graph=True); kept.extend((a, g))
kept = []; told = warned(twice); a, g = kept
assert a.grad is not g and g.requires_grad and any("create_graph=True will create a reference cycle" in w for w in told); close(a.grad.detach(), [4.0] * 3)
""",  # noqa: E501
    "A03 a gradient that nobody keeps is stolen": """
seen = []; a = leaf(3); a.register_hook(lambda g: seen.append(g.data_ptr())); (a * 2.0).sum().backward(); assert a.grad.data_ptr() == seen[0]
held = []; a = leaf(3); a.register_hook(lambda g: held.append(g)); (a * 2.0).sum().backward(); assert a.grad.data_ptr() != held[0].data_ptr()
g = torch.ones(3); a = leaf(3); a.backward(g); assert a.grad.data_ptr() != g.data_ptr()
""",  # noqa: E501
    "A04 one gradient for both inputs of +, two .grad": """
a, b, left, right = leaf(3), leaf(3), [], []
a.register_hook(lambda g: left.append(g.data_ptr())); b.register_hook(lambda g: right.append(g.data_ptr()))
((a + b) * 2.0).sum().backward(); assert left == right and a.grad.data_ptr() != b.grad.data_ptr()
""",
    "A05 .grad is laid out like the leaf": """
a = torch.ones(2, 3).t().requires_grad_(); (a * 2).sum().backward(); assert a.grad.stride() == (1, 3)
a = torch.ones(3, 2).requires_grad_(); (a.t() * torch.ones(2, 3)).sum().backward(); assert a.grad.stride() == (2, 1)
a = torch.ones(1, 3).expand(2, 3).requires_grad_(); (a * 2).sum().backward(); assert a.grad.stride() == (3, 1)
""",
    "A06 None against zeros": """
a, b = leaf(3), leaf(3); (a * 0).sum().backward(); close(a.grad, [0.0] * 3); assert b.grad is None
c = leaf(3); torch.round(c).sum().backward(); close(c.grad, [0.0] * 3); d = leaf(3); d[:1].sum().backward(); close(d.grad, [1.0, 0, 0])
""",  # noqa: E501
    "A07 assigning .grad": """
a = leaf(3)
raises(lambda: setattr(a, "grad", torch.ones(4)), "attempting to assign a gradient of size '[4]' to a tensor of size '[3]'. Please ensure that the gradient and the tensor are the same size")
raises(lambda: setattr(a, "grad", torch.ones(3, dtype=torch.double)), "attempting to assign a gradient with dtype 'double' to a tensor with grad_dtype 'Float'.")
g = torch.zeros(3); a.grad = g; (a * 2).sum().backward(); assert a.grad is g; close(g, [2.0] * 3)
""",  # noqa: E501
    "A08 gradients of non-leaves": """
h = leaf(3) * 2; h.sum().backward(); assert any("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed." in w for w in warned(lambda: h.grad))
h = leaf(3) * 2; h.retain_grad(); h.sum().backward(); close(h.grad, [1.0] * 3); raises(lambda: torch.ones(3).retain_grad(), "can't retain_grad on Tensor that has requires_grad=False")
""",  # noqa: E501
    "A09 who may require grad": """
raises(lambda: torch.tensor([1, 2], requires_grad=True), "Only Tensors of floating point and complex dtype can require gradients")
raises(lambda: torch.arange(3).requires_grad_(), "only Tensors of floating point dtype can require gradients")
raises(lambda: setattr(torch.arange(3), "requires_grad", True), "only Tensors of floating point and complex dtype can require gradients")
raises(lambda: setattr(leaf(2) * 1, "requires_grad", False), "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach().")
raises(lambda: torch.optim.SGD([leaf(2) * 1], lr=0.1), "can't optimize a non-leaf Tensor")
""",  # noqa: E501
    "A09 deepcopy refuses non-leaves": """
import copy
raises(lambda: copy.deepcopy(leaf(2) * 1), "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.")
b = torch.zeros(4); b.add_(1); assert copy.deepcopy(b)._version == 1
""",  # noqa: E501
    "A10 .grad has the leaf's type": """
h = torch.ones(2, dtype=torch.half, requires_grad=True); (h.float() * 2).sum().backward(); assert h.grad.dtype == torch.half
a, b = leaf(2), torch.ones(2, dtype=torch.double, requires_grad=True); (a * b).sum().backward(); assert (a.grad.dtype, b.grad.dtype) == (torch.float32, torch.float64)
""",  # noqa: E501
    "K01 the order of hooks of a non-leaf": """
out = []; a = leaf(2); y = a * 2
y.register_hook(lambda g: out.append("t1")); y.retain_grad(); y.register_hook(lambda g: (out.append("t2"), g * 10)[1])
y.grad_fn.register_prehook(lambda g: out.append("pre")); y.grad_fn.register_hook(lambda gi, go: out.append("post"))
y.sum().backward(); assert out == ["t1", "t2", "pre", "post"]; close(y.grad, [10.0, 10]); close(a.grad, [20.0, 20])
""",
    "K02 the order of hooks of a leaf": """
out = []; a = leaf(2)
a.register_hook(lambda g: out.append(("hook", g[0].item()))); a.register_post_accumulate_grad_hook(lambda p: out.append(("post", p.grad[0].item())))
(a * 2).sum().backward(); (a * 2).sum().backward(); assert out == [("hook", 2.0), ("post", 2.0), ("hook", 2.0), ("post", 4.0)]
""",  # noqa: E501
    "K03 hooks belong to the old value, retain_grad to the newest": """
seen = []; y = leaf(2) * 2; y.register_hook(lambda g: seen.append(g.clone())); y.mul_(3); y.sum().backward(); close(seen[0], [3.0, 3])
y = leaf(2) * 2; y.retain_grad(); y.mul_(3); y.sum().backward(); close(y.grad, [1.0, 1])
""",  # noqa: E501
    "K04 a hook that edits in place is seen by others": """
a, b = leaf(2), leaf(2); left, right = a * 1, b * 1; right.register_hook(lambda g: g.mul_(10)); ((left + right) * 2).sum().backward(); close(a.grad, [20.0, 20])
raises(lambda: torch.ones(2).register_hook(lambda g: g), "cannot register a hook on a tensor that doesn't require gradient")
""",  # noqa: E501
    "C01 what save_for_backward keeps is checked": """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i): ctx.save_for_backward(i); return i * i
    @staticmethod
    def backward(ctx, g): i, = ctx.saved_tensors; return 2 * i * g
class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i): o = i.exp(); ctx.save_for_backward(o); return o
    @staticmethod
    def backward(ctx, g): o, = ctx.saved_tensors; return g * o
h = leaf(3) * 1; y = Square.apply(h); h.add_(1); raises(lambda: y.sum().backward(), "which is output 0 of Add, is at version 1; expected version 0")
y = Power.apply(leaf(3)); y.add_(1); raises(lambda: y.sum().backward(), "which is output 0 of Power, is at version 1; expected version 0")
""",  # noqa: E501
    "C02 attributes of ctx are not checked": """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i): ctx.i = i; return i * i
    @staticmethod
    def backward(ctx, g): return 2 * ctx.i * g
a = leaf(3); h = a * 1; y = Square.apply(h); h.add_(1); y.sum().backward(); close(a.grad, [4.0] * 3)
""",
    "C03 mark_dirty": """
class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i): i.mul_(2); ctx.mark_dirty(i); return i
    @staticmethod
    def backward(ctx, g): return g * 2
class Secret(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i): i.mul_(2); return i
    @staticmethod
    def backward(ctx, g): return g * 2
h = leaf(3) * 1; y = Dirty.apply(h); assert y is h and h._version >= 1 and name(h) == "DirtyBackward"
raises(lambda: Dirty.apply(leaf(3)), "a leaf Variable that requires grad has been used in an in-place operation.")
h = leaf(3) * 1; y = Secret.apply(h); assert y is not h and name(h) == "MulBackward0" and h._version == 1; close(h.detach(), [2.0] * 3)
w = leaf(3); Secret.apply(w); close(w.detach(), [2.0] * 3)
""",  # noqa: E501
    "C04 a view made by forward may not be written": """
class Flat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i): return i.view(-1)
    @staticmethod
    def backward(ctx, g): return g
y = Flat.apply(leaf(2, 2) * 1)
raises(lambda: y.add_(1), "Output 0 of Flat is a view and is being modified inplace. This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to handle view+inplace would override the custom backward associated with the custom Function, leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function.")
""",  # noqa: E501
    "C05 returned gradients are fitted to the input": """
class Returns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i): return i.sum()
    @staticmethod
    def backward(ctx, g): return given
given = torch.ones(2, 3); a = leaf(3); Returns.apply(a).backward(); close(a.grad, [2.0] * 3)
given = torch.ones(3, dtype=torch.double); a = leaf(3); Returns.apply(a).backward(); assert a.grad.dtype == torch.float32
given = torch.ones(4); raises(lambda: Returns.apply(leaf(3)).backward(), "Function ReturnsBackward returned an invalid gradient at index 0 - got [4] but expected shape compatible with [3]")
given = (torch.ones(3), None); Returns.apply(leaf(3)).backward()
given = (torch.ones(3), torch.ones(3)); raises(lambda: Returns.apply(leaf(3)).backward(), "function ReturnsBackward returned an incorrect number of gradients (expected 1, got 2)")
given = torch.ones(3); y = Returns.apply(leaf(3)); y.backward(); y.backward()
""",  # noqa: E501
    "R01 broadcasting adds no node": """
a, b = leaf(3), leaf(2, 3); y = a + b; assert nexts(y) == ["AccumulateGrad", "AccumulateGrad"]; y.sum().backward(); close(a.grad, [2.0] * 3)
s = torch.tensor(2.0, requires_grad=True); (s * torch.ones(2, 2)).sum().backward(); assert s.grad.item() == 4.0
""",  # noqa: E501
    "R01 also for columns against rows": """
a, b = leaf(3, 1), leaf(4); y = a + b; assert (tuple(y.shape), name(y), nexts(y)) == ((3, 4), "AddBackward0", ["AccumulateGrad", "AccumulateGrad"]); y.sum().backward(); close(a.grad, [[4.0]] * 3); close(b.grad, [3.0] * 4)
""",  # noqa: E501
    "R02 the texts of shapes that do not fit": """
raises(lambda: torch.ones(3) + torch.ones(4), "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0")
raises(lambda: torch.ones(2).expand(3), "The expanded size of the tensor (3) must match the existing size (2) at non-singleton dimension 0.  Target sizes: [3].  Tensor sizes: [2]")
raises(lambda: torch.ones(2, 3) @ torch.ones(2, 3), "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)")
raises(lambda: torch.ones(2, 3).__setitem__(0, torch.ones(4)), "The expanded size of the tensor (3) must match the existing size (4) at non-singleton dimension 0.  Target sizes: [3].  Tensor sizes: [4]")
raises(lambda: torch.cat([torch.ones(2, 3), torch.ones(2, 4)]), "Sizes of tensors must match except in dimension 0. Expected size 3 but got size 4 for tensor number 1 in the list.")
""",  # noqa: E501
    "R03 losses only warn of (N,) against (N, 1)": """
p, y = leaf(4, 1), torch.ones(4)
for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
    assert any("Using a target size (torch.Size([4])) that is different to the input size (torch.Size([4, 1]))" in w for w in warned(lambda: loss(p, y)))
assert warned(lambda: ((p - y) ** 2).mean()) == []
raises(lambda: F.binary_cross_entropy_with_logits(p, y), "Target size (torch.Size([4])) must be the same as input size (torch.Size([4, 1]))")
""",  # noqa: E501
    "R03 binary_cross_entropy refuses": """
p, y = leaf(4, 1), torch.ones(4)
raises(lambda: F.binary_cross_entropy(torch.sigmoid(p), y), "Using a target size (torch.Size([4])) that is different to the input size (torch.Size([4, 1])) is deprecated.")
""",  # noqa: E501
    "R04 expand and repeated indices accumulate": """
a = leaf(1, 3); a.expand(4, 3).sum().backward(); close(a.grad, [[4.0] * 3]); e = leaf(3); e[[0, 0, 1]].sum().backward(); close(e.grad, [2.0, 1, 0])
s = leaf(2); torch.zeros(2).index_put((torch.tensor([0, 1]),), s).sum().backward(); close(s.grad, [1.0, 1])
""",  # noqa: E501
    "R04 padding rows get nothing, repeated places accumulate": """
w = leaf(3, 1); F.embedding(torch.tensor([1, 0]), w, padding_idx=0).sum().backward(); close(w.grad, [[0.0], [1], [0]])
s = leaf(2); torch.zeros(2).index_put((torch.tensor([0, 0]),), s).sum().backward(); close(s.grad, [1.0, 1])
""",
    "R05 empty sizes work": """
a = torch.ones(0, 3, requires_grad=True); a.sum().backward(); assert a.grad.shape == (0, 3)
""",
    "R05 gradients of empty sums": """
a = torch.ones(2, 0, requires_grad=True); b = leaf(2, 1); (a + b).sum().backward(); close(b.grad, [[0.0], [0.0]]); assert torch.ones(0).mean().isnan() and torch.ones(0).sum() == 0
""",  # noqa: E501
    "D01 promotion looks at categories": """
i, f, d0 = torch.ones(2, dtype=torch.int64), torch.ones(2), torch.tensor(1.0, dtype=torch.float64)
h, g = torch.ones(2, dtype=torch.half), torch.ones(2, dtype=torch.bfloat16)
assert [(i + 1.5).dtype, (i + d0).dtype, (f + d0).dtype, (h + 1.5).dtype, (h + g).dtype] == [torch.float32, torch.float64, torch.float32, torch.half, torch.float32]
u, s, b = torch.ones(2, dtype=torch.uint8), torch.ones(2, dtype=torch.int8), torch.ones(2, dtype=torch.bool); assert [(u + s).dtype, (b + b).dtype] == [torch.int16, torch.bool]
""",  # noqa: E501
    "D01 the whole table": """
f32, f64, i64, i32 = (torch.ones(3, dtype=d) for d in (torch.float32, torch.float64, torch.int64, torch.int32)); u8, i8, bo, hf, bf = (torch.ones(3, dtype=d) for d in (torch.uint8, torch.int8, torch.bool, torch.half, torch.bfloat16))
s64, s32, si = torch.tensor(1.0, dtype=torch.double), torch.tensor(1.0), torch.tensor(1)
for got, want in [(f32 + f64, torch.float64), (f32 + s64, torch.float32), (s32 + s64, torch.float64), (i64 + s64, torch.float64), (i64 + s32, torch.float32), (i64 + 1.5, torch.float32), (i64 * 2, torch.int64), (i32 + 1, torch.int32), (i32 + si, torch.int32),
                  (i32 + i64, torch.int64), (u8 + i8, torch.int16), (bo + bo, torch.bool), (bo + 1, torch.int64), (bo * 1.5, torch.float32), (hf + f32, torch.float32), (hf + s32, torch.float16), (hf + bf, torch.float32), (hf + 1.5, torch.float16), (f32 * np.float64(2), torch.float32)]:
    assert got.dtype == want
""",  # noqa: E501
    "D02 division, powers and sums of integers": """
i = torch.tensor([1, 2]); assert [(i / 2).dtype, (i // 2).dtype, (i ** 0.5).dtype, i.to(torch.int32).sum().dtype] == [torch.float32, torch.int64, torch.float32, torch.int64]
raises(lambda: i.mean(), "mean(): could not infer output dtype."); raises(lambda: i ** -1, "Integers to negative integer powers are not allowed.")
""",  # noqa: E501
    "D02 the whole table": """
f32, f64, i64, i32 = (torch.ones(3, dtype=d) for d in (torch.float32, torch.float64, torch.int64, torch.int32)); bo, hf = (torch.ones(3, dtype=d) for d in (torch.bool, torch.half))
for got, want in [(i64 / i64, torch.float32), (i64 // i64, torch.int64), (f32 > f64, torch.bool), (i32.sum(), torch.int64), (bo.sum(), torch.int64), (hf.sum(), torch.float16), (i32.cumsum(0), torch.int64), (i64 ** 2, torch.int64), (i64 ** 2.0, torch.float32), (2.0 ** i64, torch.float32),
                  (i64.sqrt(), torch.float32), (torch.where(bo, f32, f64), torch.float64), (torch.where(bo, f32, 1.0), torch.float32), (torch.cat([i64, f32]), torch.float32), (torch.stack([f32, f64]), torch.float64), (torch.tensor(1), torch.int64), (torch.tensor(1.0), torch.float32),
                  (torch.tensor([1, 2.0]), torch.float32), (torch.tensor(np.ones(2)), torch.float64), (torch.arange(3), torch.int64), (torch.full((2,), 1), torch.int64)]:
    assert got.dtype == want
""",  # noqa: E501
    "D03 in place the category must not sink": """
f = torch.ones(2); f.add_(torch.ones(2, dtype=torch.double)); assert f.dtype == torch.float32
i = torch.ones(2, dtype=torch.int64); raises(lambda: i.add_(1.5), "result type Float can't be cast to the desired output type Long")
i[0] = 1.7; i.copy_(torch.tensor([2.9, 2.9])); assert i.tolist() == [2, 2]
""",  # noqa: E501
    "D03 assignment truncates silently": """
i64, i32, bo = (torch.ones(3, dtype=d) for d in (torch.int64, torch.int32, torch.bool)); assert i32.clone().add_(i64).dtype == torch.int32
raises(lambda: i64.clone().div_(2), "result type Float can't be cast to the desired output type Long"); raises(lambda: bo.clone().add_(1), "result type Long can't be cast to the desired output type Bool")
t = torch.zeros(3, dtype=torch.long); t[0] = 1.7; t[1:] = torch.tensor([2.9, 3.9]); assert t.tolist() == [1, 2, 3]; t.copy_(torch.full((3,), 1.7)); assert t.tolist() == [1, 1, 1]
""",  # noqa: E501
    "D04 matmul never promotes, cross_entropy wants class numbers": """
f, d = torch.ones(3), torch.ones(3, dtype=torch.double)
raises(lambda: f @ d, "dot : expected both vectors to have same dtype, but found Float and Double")
raises(lambda: nn.Linear(3, 2)(torch.ones(1, 3, dtype=torch.double)), "mat1 and mat2 must have the same dtype, but got Double and Float")
raises(lambda: torch.ones(2, 3).mm(torch.ones(3, 2, dtype=torch.double)), "expected m1 and m2 to have the same dtype, but got: float != double")
raises(lambda: F.cross_entropy(torch.ones(4, 3), torch.ones(4)), "expected target dtype to be Long or Byte, but got Float")
""",  # noqa: E501
    "O01 expanded memory may not be written": """
for change in (lambda v: v.add_(1), lambda v: v.relu_(), lambda v: v.copy_(torch.ones(2, 3)), lambda v: v.normal_(), lambda v: v.__setitem__((slice(None), 0), torch.ones(2)), lambda v: v.index_add_(0, torch.tensor([0]), torch.ones(1, 3))):
    assert raises(lambda: change(torch.ones(1, 3).expand(2, 3))) == "unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please clone() the tensor before performing the operation."
""",  # noqa: E501
    "O02 except by a row, zero_, fill_, masks and indices": """
v = torch.zeros(1, 3).expand(2, 3); v[0] = 1.0; assert v.tolist() == [[1.0] * 3] * 2; v.zero_(); v.fill_(3.0); assert v.tolist() == [[3.0] * 3] * 2
v = torch.zeros(1, 3).expand(2, 3); assert any("Use of masked_fill_ on expanded tensors is deprecated." in w for w in warned(lambda: v.masked_fill_(torch.tensor([[True, False, False], [False] * 3]), 1.0)))
assert v.tolist() == [[1.0, 0, 0]] * 2; assert any("Use of index_put_ on expanded tensors is deprecated." in w for w in warned(lambda: v.__setitem__(torch.tensor([0]), torch.zeros(3))))
""",  # noqa: E501
    "O03 partial overlap of input and output is refused": """
text = "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location."
a = torch.arange(5.0); raises(lambda: a[1:].add_(a[:-1]), text); raises(lambda: a.__setitem__(slice(1, None), a[:-1]), text); m = torch.ones(2, 2); raises(lambda: m.add_(m.t()), text)
a[1:] = a[:-1].clone(); a.add_(a)
""",  # noqa: E501
    "O04 some overlaps are not detected": """
v = torch.ones(4).unfold(0, 2, 1); v.add_(1); assert v.tolist() == [[2.0, 3.0], [3.0, 3.0], [3.0, 2.0]]
a = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]); a -= a[:, :1]; assert a.tolist() == [[0.0, 2.0, 3.0], [0.0, 5.0, 6.0]]
""",  # noqa: E501
    "P01 numpy() needs a tensor that does not require grad": """
raises(lambda: leaf(3).numpy(), "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
with torch.no_grad(): leaf(3).numpy()
leaf(3).numpy(force=True); t = torch.ones(2); np.asarray(t).__iadd__(1); assert t.tolist() == [2.0, 2.0]
""",
    "P01 np.array asks the same": """
raises(lambda: np.array(leaf(3)), "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
""",  # noqa: E501
    "P02 from_numpy shares, tensor copies": """
n = np.ones(2); torch.from_numpy(n).add_(1); torch.tensor(n).add_(1); assert n.tolist() == [2.0, 2.0] and torch.from_numpy(n).dtype == torch.float64
raises(lambda: torch.from_numpy(n[::-1]), "At least one stride in the given numpy array is negative")
""",  # noqa: E501
    "P02 as_tensor and asarray share unless the type changes": """
n = np.ones(2); torch.as_tensor(n).add_(1); torch.asarray(n).add_(1); torch.from_numpy(n).add_(1); assert n.tolist() == [4.0, 4.0]
torch.tensor(n).add_(1); torch.as_tensor(n, dtype=torch.float32).add_(1); assert n.tolist() == [4.0, 4.0]
""",  # noqa: E501
    "P03 torch.tensor of a tensor detaches": """
x = leaf(2); assert any("To copy construct from a tensor" in w for w in warned(lambda: torch.tensor(x * 2))) and not torch.tensor([leaf(1)[0].detach()]).requires_grad and torch.as_tensor(x * 2).requires_grad
""",  # noqa: E501
    "P03 a list of tensors too, and as_tensor returns its argument": """
assert any("To copy construct from a tensor" in w for w in warned(lambda: torch.tensor(leaf(2) * 2)))
assert not torch.tensor([torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)]).requires_grad
x = leaf(2) * 2; assert torch.as_tensor(x) is x
""",
    "M02 state_dict follows the weights": """
m = nn.Linear(2, 2); s = m.state_dict()["weight"]; v = s._version
with torch.no_grad(): m.weight.add_(1)
assert s._version == v + 1 and s.tolist() == m.weight.tolist() and not s.requires_grad
""",
    "M03 in-place leaky_relu with a negative slope fails in backward": """
y = F.leaky_relu(leaf(3) * 1, -0.5, inplace=True); raises(lambda: y.sum().backward(), "In-place leakyReLu backward calculation is triggered with a negative slope which is not supported.")
F.leaky_relu(leaf(3) * 1, 0.0, inplace=True).sum().backward()
""",  # noqa: E501
    "Z01 gradients at kinks": """
x = torch.zeros(1, requires_grad=True)
def slope(f, at=0.0):
    x = torch.tensor([at], requires_grad=True); f(x).sum().backward(); return x.grad.item()
assert [slope(lambda x: x.relu()), slope(lambda x: x.abs()), slope(lambda x: F.leaky_relu(x, 0.1)), slope(lambda x: x.clamp(0, 1)), slope(lambda x: F.hardtanh(x), 1.0), slope(lambda x: x ** 0), slope(lambda x: x.norm()), slope(lambda x: x % 2)] == [0, 0, slope(lambda x: x * 0.1), 0 if since(2, 14) else 1, 0, 0, 0, 1]
assert slope(lambda x: x.sqrt()) == float("inf") and slope(lambda x: x.log()) == float("inf")
""",  # noqa: E501
    "Z01 the whole table": """
inf = float("inf")
def grads(f, *at):
    xs = [torch.tensor(v, requires_grad=True) for v in at]; f(*xs).sum().backward(); return [x.grad.tolist() for x in xs] if len(xs) > 1 else xs[0].grad.tolist()
for f, at, want in [(torch.relu, [0.0, 1.0], [0.0, 1.0]), (torch.abs, [0.0, -1.0], [0.0, -1.0]), (torch.sqrt, [0.0], [inf]), (lambda x: x ** 0.5, [0.0], [inf]), (lambda x: x ** 0, [0.0], [0.0]), (torch.log, [0.0], [inf]), (lambda x: x.norm(), [0.0, 0.0], [0.0, 0.0]),
                    (lambda x: x.std(), [1.0, 1.0], [0.0, 0.0]), (lambda x: x.clamp(0, 1), [0.0, 1.0, 2.0], [0.0, 0.0, 0.0] if since(2, 14) else [1.0, 1.0, 0.0]), (F.hardtanh, [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]), (F.relu6, [0.0, 6.0], [0.0, 0.0]), (lambda x: F.leaky_relu(x, 0.5), [0.0], [0.5]), (lambda x: x % 2, [3.5], [1.0])]:
    assert grads(f, at) == want
""",  # noqa: E501
    "Z02 ties": """
a = leaf(4); a.max().backward(); close(a.grad, [0.25] * 4); a = leaf(2, 2); a.max(0).values.sum().backward(); close(a.grad, [[1.0, 1], [0, 0]])
a, b = leaf(1), leaf(1); torch.maximum(a, b).backward(); assert a.grad.item() == b.grad.item() == 0.5
a = torch.tensor([0.0, 2, 3], requires_grad=True); a.prod().backward(); close(a.grad, [6.0, 0, 0])
""",  # noqa: E501
    "Z02 the whole table": """
def grads(f, *at):
    xs = [torch.tensor(v, requires_grad=True) for v in at]; f(*xs).sum().backward(); return [x.grad.tolist() for x in xs] if len(xs) > 1 else xs[0].grad.tolist()
assert grads(lambda x: x.max(), [1.0, 1.0, 0.0]) == grads(lambda x: x.amax(), [1.0, 1.0, 0.0]) == grads(lambda x: x.median(), [1.0, 1.0, 2.0]) == [0.5, 0.5, 0.0] and grads(lambda x: x.max(0).values, [1.0, 1.0, 0.0]) == [1.0, 0.0, 0.0]
assert grads(torch.maximum, [1.0, 2.0], [1.0, 3.0]) == [[0.5, 0.0], [0.5, 1.0]] and grads(lambda x: x.prod(), [0.0, 2.0, 3.0]) == [6.0, 0.0, 0.0] and grads(lambda x: x.cumprod(0), [2.0, 0.0, 3.0]) == [1.0, 8.0, 0.0]
""",  # noqa: E501
    "Z03 NaN leaks through the unused branch of where": """
x = torch.tensor([0.0, 4.0], requires_grad=True); torch.where(x > 0, x / x, torch.zeros(2)).sum().backward(); g = x.grad.tolist(); assert g[0] != g[0]
""",  # noqa: E501
    "Z03 also through masked assignment": """
x = torch.tensor([1.0, 100.0], requires_grad=True); torch.where(x <= 1, torch.exp(x), 1 + x).sum().backward(); assert x.grad[1].isnan()
x = torch.tensor([1.0, 1.0], requires_grad=True); y = x / torch.tensor([0.0, 2.0]); y[0] = 0.0; y.sum().backward(); assert x.grad[0].isnan() and x.grad[1] == 0.5
""",  # noqa: E501
}

ONLY_IN_LOCKSTEP: dict[str, str] = {
    "B01 out=, lists, dropout and layouts too": "a few in-place methods",
    "W01 these are views": "torch.einsum",
    "S04 complex and half types": "exp of a complex tensor",
    "S09 saved-tensor hooks switch the check off": "saved_tensors_hooks",
    "S13 torch's own vander breaks its backward": "torch.vander",
    "M01 checkpoint checks its inputs and nothing else": "torch.utils.checkpoint",
    "K01 the order of hooks of a non-leaf": "hooks of nodes",
    "K02 the order of hooks of a leaf": "register_post_accumulate_grad_hook",
    "Z02 the whole table": "Tensor.cumprod",
}
"""Facts that need more of torch than the stand-alone facade has, and what: the two engines are
compared on them in lockstep only.
"""
