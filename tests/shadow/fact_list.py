"""The verified facts of torch that the shadow must reproduce, one line each; ``facts.py`` holds
programs for every one of them.
"""

LIST = """
V01 every tensor counts its in-place changes, from 0
V02 a base, its views, detach(), torch.Tensor(t) and Parameter(t) share one counter
V03 .data has a counter of its own: changes through it are invisible
V04 NumPy writes are not counted, and from_numpy has a counter of its own
V05 s.set_(b) shares memory and keeps its own counter
V06 clone() starts at 0, aliases go on with the shared number, deepcopy ends at 1
V07 assigning .data keeps the old counter, shared with tensors that no longer share memory
V08 p.data = t and module.double() swap the memory, keep the object, and do not bump
V09 a freshly built nn.Linear has version 1: its initialisation was in place
V10 increment_version bumps, _unsafe_preserve_version_counter hides bumps
B01 in-place methods, x[...] = v, out=, in-place layouts, set_, resize_, _foreach_*_ and nn.init bump by 1
B02 detach_, requires_grad_, resize_ to the same size, reads, .data, NumPy and dropout in eval mode bump by 0
B03 x[0] += 1 bumps by 2, x[[0, 1]] += 1 by 1
B04 no_grad and inference_mode do not hide bumps
B05 an optimizer bumps the parameters that have a gradient (AdamW and NAdam by 2), never the gradient
B06 fused optimizers do not bump
B07 clip_grad_norm_ bumps gradients; zero_grad(set_to_none=False) zeroes in place
B08 batch_norm writes its running statistics without a bump
B09 Embedding(max_norm=...) and load_state_dict write in place; assign=True replaces the Parameter
W01 what gives a view
W02 what gives a copy
W03 what returns the very object
W04 detach, data, Parameter and view(dtype) share memory without being autograd views
W05 _base is the root, never a view in between
W06 strides and offsets, and the error of view
W07 meshgrid returns stride-0 views
H01 h += 1 keeps the object and replaces grad_fn; earlier consumers keep their edge
H02 a write through a view gives the base CopySlices and the view AsStridedBackward0
H03 a view's grad_fn is made anew when its base has changed
H04 what each form of assignment leaves behind
H05 a plain buffer that receives a gradient value joins the graph; a detached alias joins alone
H06 a CopySlices that saved its result is broken by any later write to the base
H07 zero_ and fill_ cut the gradient with zeros
H08 detach_ makes a plain leaf; saved inputs then fail, saved outputs do not
H09 several views of one base may be edited in turn
E01 no in-place change of a leaf that requires grad
E02 nor of a view of such a leaf
E03 both are allowed under no_grad
E04 outputs of split, chunk, unbind and iteration may not be changed
E05 under no_grad the write succeeds and the next use fails
E06 tensor_split gives ordinary slices, unsafe_split counts alone
E07 a view made under no_grad may not be written in grad mode
E08 the texts of resize_, detach_ of a view, a result that does not fit, and out=
N01 no_grad results are plain leaves; in-place keeps the history
N02 inference tensors have no counter and may not be written, saved or made to require grad outside
N03 a view made in inference mode may not be written later
N04 a view made under no_grad says requires_grad=True and leads nowhere
N05 and using it after a change of its base raises
S01 a saved input is the very object, a saved output another one on the same memory
S02 the message: type, shape, operation, versions
S03 the operation is CopySlices when changed through a view, AsStrided when a saved view's base was changed
S04 how types are written; index, mask and target are checked too
S05 nodes that backward does not reach are not checked
S06 the counter covers the whole storage: a disjoint write is enough
S07 in-place operations save a clone of the old self, or their result at its new version
S08 which self-referencing in-place operations fail, and when
S09 saved-tensor hooks switch the check off
S10 the check does not see .data, NumPy, or p.data = ...
S11 nor the running statistics of batch_norm
S12 anomaly mode: another hint, and a warning with the forward call
S13 torch's own vander breaks its backward
F01 a second backward needs what the first has freed
F02 nodes that saved nothing run again
F03 two losses that share a node with saved tensors need retain_graph
F04 only what leads to the inputs runs, and that is freed entirely
F05 what cannot be differentiated, in torch's words
F06 autograd.grad: unused, plain, materialised
F07 a backward that fails may have filled some gradients
F08 newest nodes run first
A01 the first backward sets .grad, later ones add in place
A02 with create_graph=True every backward makes a new .grad, and warns
A03 a gradient that nobody else holds is stolen
A04 a + b hands one gradient to both, in two .grad
A05 .grad is laid out like the leaf
A06 None against zeros
A07 assigning .grad
A08 gradients of non-leaves
A09 who may require grad, be optimized, be deep-copied
A10 .grad has the leaf's type
K01 the order of hooks of a non-leaf
K02 the order of hooks of a leaf
K03 hooks belong to the old value, retain_grad to the newest
K04 a hook that edits in place is seen by others
C01 what save_for_backward keeps is checked
C02 attributes of ctx are not checked
C03 mark_dirty, and what happens without it
C04 a view that forward returns may not be written
C05 returned gradients are summed, cast, counted or refused
R01 broadcasting adds no node; gradients are summed to the operand
R02 the texts of shapes that do not fit
R03 losses only warn of (N,) against (N, 1), the BCE losses refuse
R04 expand and repeated indices accumulate
R05 empty sizes work
D01 promotion looks at categories
D02 division, powers, sums and means of integers
D03 in place the category must not sink; assignment truncates
D04 the matmul family never promotes, cross_entropy wants class numbers
O01 expanded memory may not be written
O02 except by a row, zero_, fill_, masks and indices
O03 partial overlap of input and output is refused
O04 some overlaps are not detected
P01 numpy() needs a tensor that does not require grad
P02 from_numpy, as_tensor and asarray share, torch.tensor copies
P03 torch.tensor of a tensor copies and detaches
M01 checkpoint checks its inputs and nothing else
M02 state_dict follows the weights
M03 in-place leaky_relu with a negative slope fails in backward
M04 training batch_norm keeps its running statistics without using them
Z01 gradients at kinks
Z02 gradients at ties
Z03 NaN leaks through the unused branch of where
T01 which tensors each operation saves (the table saved_table.md)
""".strip().splitlines()
"""Facts as lines, each beginning with its id."""

SURPRISES = (
    "B06 B05", "B08 S11", "N04", "N05", "V07", "B03 B02 B01", "B05", "S06 H06", "E04 E06", "S02 S03", "S08", "F07",
    "F01 F02", "V09 S03", "O01 O02 O04", "W03", "S13", "S09",
)  # fmt: skip
"""Where torch surprises most, as the ids of the facts behind each surprise."""
