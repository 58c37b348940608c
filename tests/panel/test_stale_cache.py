"""Results that are kept (in a dict, a list, an attribute, by functools), and used after the weights have changed."""

from __future__ import annotations

import pytest

START = """import functools
torch.manual_seed(0)
X, Y = torch.randn(32, 4), torch.randint(0, 2, (32,))
data = {'train': X[:24], 'test': X[24:]}
enc = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
top = nn.Linear(6, 2)
opt = torch.optim.Adam([*enc.parameters(), *top.parameters()], 0.01)
def train(n=3):
    for _ in range(n):
        opt.zero_grad()
        nn.functional.cross_entropy(top(enc(X)), Y).backward()
        opt.step()"""
CACHE = "kept = {}"
MISSING = f"""{CACHE}
def features(part):
    if part not in kept:
        with torch.no_grad():
            kept[part] = enc(data[part])
    return kept[part]"""
EARLY = f"""{CACHE}
@torch.no_grad()
def features(part):
    if part in kept:
        return kept[part]
    z = enc(data[part])
    kept[part] = z.numpy()
    return kept[part]"""
GET = f"""{CACHE}
def embed(x):
    with torch.no_grad():
        return enc(x)
def features(part):
    z = kept.get(part)
    if z is None:
        z = kept[part] = (embed(data[part]), part)
    return z[0]"""
TRY = f"""{CACHE}
def features(part):
    try:
        return kept[part]
    except KeyError:
        kept[part] = enc(data[part]).detach()
        return kept[part]"""
DEFAULT = """@torch.no_grad()
def features(part, kept={}):
    if part not in kept:
        kept[part] = enc(data[part])
    return kept[part]"""
GIVEN = f"""{CACHE}
@torch.no_grad()
def features(model, part):
    return kept.setdefault(part, model(data[part]))"""
MEMO = """@functools.cache
def features(part):
    with torch.no_grad():
        return enc(data[part])"""
LEAST = MEMO.replace("@functools.cache", "@torch.no_grad()\n@functools.lru_cache(maxsize=8)")
GLOBAL = """z_train = None
def features(part):
    global z_train
    if z_train is None:
        z_train = enc(data['train']).detach()
    return z_train"""
METHOD = """class Features:
    def __init__(self, model):
        self.model, self.kept = model, {}
    @torch.no_grad()
    def of(self, part):
        if part not in self.kept:
            self.kept[part] = self.model(data[part])
        return self.kept[part]
source = Features(enc)
def features(part):
    return source.of(part)"""
PROPERTY = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = enc
    @functools.cached_property
    def z(self):
        with torch.no_grad():
            return self.body(data['train'])
net = Net()
def features(part):
    return net.z"""
PROBE = """def probe():
    z = features('train')
    head = nn.Linear(6, 2)
    steps = torch.optim.SGD(head.parameters(), 0.1)
    for _ in range(3):
        steps.zero_grad()
        nn.functional.cross_entropy(head(torch.as_tensor(z)), Y[:24]).backward()
        steps.step()
    return (head(torch.as_tensor(features('train'))).argmax(1) == Y[:24]).float().mean().item()"""
USE = "score = probe()"
INLINE = """for _ in range(3):
    for rows in torch.randperm(32).split(16):
        opt.zero_grad()
        nn.functional.cross_entropy(top(enc(X[rows])), Y[rows]).backward()
        opt.step()"""
EMPTY = "kept.clear()"


def of_cache(warned):
    return [each for some in warned for each in some if each["kind"] == "stale-cache"]


@pytest.mark.parametrize(
    ("keep", "entry", "empty"),
    [
        (MISSING, "kept['train']", EMPTY),
        (EARLY, "kept['train']", EMPTY),
        (GET, "kept['train']", EMPTY),
        (TRY, "kept['train']", EMPTY),
        (DEFAULT, "kept['train']", DEFAULT),
        (MEMO, "features(…)", "features.cache_clear()"),
        (LEAST, "features(…)", "features.__wrapped__.cache_clear()"),
        (GLOBAL, "z_train", "z_train = None"),
        (METHOD, "source.kept['train']", "source.kept.clear()"),
        (PROPERTY, "net.z", "del net.z"),
        (MISSING.replace("kept", "_kept"), "_kept['train']", "_kept.clear()"),
    ],
)
def test_the_cell_that_reads_what_was_kept_before_the_training_is_named(notebook, keep, entry, empty):
    warned = [notebook.run(text) for text in (START, keep, PROBE, USE, "train()", "print(enc)", USE)]
    assert warned[:-1] == [[]] * 6
    [warning] = warned[-1]
    assert (warning["kind"], warning["level"]) == ("stale-cache", "silent")
    module = "source.model" if keep is METHOD else "net.body" if keep is PROPERTY else "enc"
    assert warning["sentence"]["en"].startswith(f"`{entry}` of In [5] comes from `{module}` as it was then. In [6]")
    assert "and In [8] used the old results" in warning["sentence"]["en"]
    assert of_cache([notebook.run("1 + 1")]) != []
    assert ("Define `features` again" if keep is DEFAULT else f"(`{empty}`)") in warning["fix"]["en"]
    assert of_cache([notebook.run(empty), notebook.run(USE)]) == []


@pytest.mark.parametrize(
    "cells",
    [
        [MISSING, PROBE, USE, "train()\nscore = probe()"],
        [MISSING, PROBE, USE, "train(1)", "train(1)", USE],
        [MISSING, PROBE, USE, INLINE, "for z in features('train'):\n    z.sum()"],
        [MISSING, PROBE, USE, f"{INLINE}\nfor z in features('train'):\n    z.sum()"],
        [GIVEN, "a = features(enc, 'train').mean().item()", "train()", "b = features(enc, 'train').mean().item()"],
        ["z = None", "if z is None:\n    z = enc(X).detach()", "train()", "if z is None:\n    z = enc(X).detach()"],
        [MISSING, PROBE, USE, "enc = nn.Sequential(nn.Linear(4, 6), nn.ReLU())", USE],
    ],
)
def test_other_ways_to_train_and_to_read(notebook, cells):
    warned = [notebook.run(text) for text in (START, *cells)]
    assert of_cache(warned[:-1]) == []
    assert len(of_cache(warned[-1:])) == 1


KEYED = """kept, version = {}, 0
def features(part):
    key = part, version
    if key not in kept:
        with torch.no_grad():
            kept[key] = enc(data[part])
    return kept[key]"""
CHECKED = """kept, made_at = {}, -1
def features(part):
    global made_at
    now = enc[0].weight._version
    if part not in kept or made_at != now:
        made_at = now
        kept[part] = enc(data[part]).detach()
    return kept[part]"""
HEAD = """for p in enc.parameters():
    p.requires_grad_(False)
def predict(part):
    if part not in kept:
        kept[part] = enc(data[part]).detach()
    return top(kept[part])
opt = torch.optim.Adam(top.parameters(), 0.01)"""
DRIFT = """first = None
def drift():
    global first
    if first is None:
        first = enc(X).detach()
    return (enc(X).detach() - first).norm().item()"""
BEST = """best, low = None, 9.0
def fit():
    global best, low
    train()
    loss = nn.functional.cross_entropy(top(enc(X)), Y).item()
    if best is None or loss < low:
        best, low = enc(X).detach(), loss
    return low"""
MASKS = """masks = {}
def mask(n):
    if n not in masks:
        masks[n] = torch.ones(n, n).tril()
    return masks[n]
def attend(x):
    return mask(len(x)) @ enc(x)"""


@pytest.mark.parametrize(
    "cells",
    [
        [MISSING, PROBE, USE, "train()\nkept.clear()", USE],
        [MISSING, PROBE, USE, "train()", EMPTY, USE],
        [MISSING, PROBE, USE, "train()", "kept = {}", USE],
        [MEMO, PROBE, USE, "train()", "features.cache_clear()", USE],
        [KEYED, PROBE, USE, "train()\nversion += 1", USE],
        [CHECKED, PROBE, USE, "train()", USE],
        [CACHE, HEAD, "predict('train').mean().item()", "train()", "predict('train').mean().item()"],
        [DRIFT, "drift()", "train()", "drift()"],
        [BEST, "fit()", "low = -1.0", "fit()"],
        [MASKS, "attend(X).mean().item()", "train()", "attend(X).mean().item()"],
        [MISSING, PROBE, USE, "import copy\nold = copy.deepcopy(enc.state_dict())\ntrain()",
        "enc.load_state_dict(old)", USE],  # the weights are as they were
        [MISSING, "before = features('train')", "train()", "moved = (enc(X[:24]) - before).norm().item()"],
        [MISSING, "features('test').mean().item()", "train()",
        "moved = (enc(data['test']) - features('test')).norm().item()"],
        [GIVEN, "features(enc, 'train').mean().item()", "other = nn.Linear(4, 6)", "train()",
        "kept.clear()\nfeatures(other, 'train').mean().item()"],
        [MISSING, PROBE, f"{USE}\ntrain()", "print(score)"],
        [MISSING, PROBE, USE, f"z = features('train')\n{INLINE}", "print(score)"],
        ["rows = []",
        "for _ in range(3):\n    if not rows:\n        rows.append(enc(X).detach())\n    train()", "rows"],
    ],
)  # fmt: skip
def test_what_is_emptied_or_keyed_or_compared_is_right(notebook, cells):
    assert of_cache([notebook.run(text) for text in (START, *cells)]) == []


PREPARED = """kept = {}
def prep(x):
    return x - x.mean(0)
def features(part):
    if part not in kept:
        kept[part] = prep(data[part])
    return kept[part]
def fit():
    head = nn.Linear(4, 2)
    steps = torch.optim.SGD(head.parameters(), 0.1)
    for _ in range(3):
        steps.zero_grad()
        nn.functional.cross_entropy(head(features('train')), Y[:24]).backward()
        steps.step()
    return head
def score(head, part):
    return head(features(part)).mean().item()"""
ANEW = "def prep(x):\n    return (x - x.mean(0)) / x.std(0)"
OF_MEMO = PREPARED.replace("def features", "@functools.cache\ndef features").replace(
    "    if part not in kept:\n        kept[part] = prep(data[part])\n    return kept[part]",
    "    return prep(data[part])",
)
BEHIND = PREPARED.replace("kept[part] = prep(data[part])", "kept[part] = clean(data[part])").replace(
    "def features", "def clean(x):\n    return prep(x).clamp(-3, 3)\ndef features"
)
OF_GLOBAL = """z = None
def prep(x):
    return x - x.mean(0)
def features(part='train'):
    global z
    if z is None:
        z = prep(data['train'])
    return z"""


@pytest.mark.parametrize(
    ("keep", "entry", "empty"),
    [
        (PREPARED, "kept['train']", EMPTY),
        (OF_MEMO, "features(…)", "features.cache_clear()"),
        (BEHIND, "kept['train']", EMPTY),
    ],
)
def test_what_was_kept_before_the_function_was_defined_anew(notebook, keep, entry, empty):
    warned = [notebook.run(text) for text in (START, keep, "head = fit()", ANEW, "1 + 1", "head = fit()")]
    assert warned[:-1] == [[]] * 5
    [warning] = warned[-1]
    assert (warning["kind"], warning["level"]) == ("stale-cache", "silent")
    assert warning["sentence"]["en"].startswith(
        f"`{entry}` of In [4] comes from `prep` as it was defined then. In [5] defined `prep` anew, and In [7] used"
    )
    assert f"(`{empty}`)" in warning["fix"]["en"]
    if keep is not OF_MEMO:  # which of them functools returns is not counted
        assert len(of_cache([notebook.run("low = score(head, 'test')")])) == 1  # the new entry hides no old one
    assert of_cache([notebook.run(empty), notebook.run("head = fit()")]) == []


@pytest.mark.parametrize(
    "cells",
    [
        [OF_GLOBAL, "features().mean().item()", ANEW, "features().mean().item()"],
        [PREPARED, "head = fit()", f"{ANEW}\nhead = fit()"],
        [PREPARED, "head = fit()", ANEW, "low = score(head, 'test')", "low = score(head, 'train')"],
    ],
)
def test_other_ways_to_use_what_an_earlier_function_has_made(notebook, cells):
    warned = [notebook.run(text) for text in (START, *cells)]
    assert of_cache(warned[:-1]) == []
    assert [each["sentence"]["en"].count("`prep`") for each in of_cache(warned[-1:])] == [2]


@pytest.mark.parametrize(
    "cells",
    [
        [PREPARED, "head = fit()", f"{ANEW}\nkept.clear()", "head = fit()"],
        [PREPARED, "head = fit()", ANEW, EMPTY, "head = fit()"],
        [PREPARED, "head = fit()", "def prep(x):\n    'Centred.'\n\n    return x - x.mean(0)", "head = fit()"],
        [PREPARED, "head = fit()", ANEW, "low = score(head, 'test')"],  # computed by the new one
        [PREPARED, "head = fit()", ANEW, "(prep(data['train']) - features('train')).norm().item()"],
        [
            PREPARED.replace("kept[part] = prep", "note(part)\n        kept[part] = prep")
            + "\ndef note(part):\n    print(part)",
            "head = fit()",
            "def note(part):\n    print('new', part)",
            "head = fit()",
        ],
        [PREPARED, "head = fit()", "def other(x):\n    return x", "head = fit()"],
    ],
)
def test_what_the_new_function_makes_or_is_emptied_is_right(notebook, cells):
    assert of_cache([notebook.run(text) for text in (START, *cells)]) == []
