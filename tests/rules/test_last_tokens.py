"""PL939: sequences padded with the number that they end in; and programs where the last token has its loss."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

TEXTS = """
from torch.nn.utils.rnn import pad_sequence
texts = [torch.tensor([0, 2, 3, 1]), torch.tensor([0, 3, 1]), torch.tensor([0, 2, 2, 3, 1])]
table, head = nn.Embedding(6, 8), nn.Linear(8, 6)
def scores(tokens):
    return head(table(tokens))
"""
WRONG = {
    "a module, and the loss of a table": TEXTS
    + """
loss_of = nn.CrossEntropyLoss(ignore_index=1)
tokens = pad_sequence(texts, batch_first=True, padding_value=1)
loss_of(scores(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:]).backward()  # PL939
""",
    "positions first": TEXTS
    + """
tokens = pad_sequence(texts, padding_value=1)
given, wanted = tokens[:-1], tokens[1:]
F.cross_entropy(scores(given).permute(0, 2, 1), wanted, ignore_index=1).backward()  # PL939
""",
}
FLAT = {
    "flat, in a function": TEXTS
    + """
END = 1
def step(tokens):
    given, wanted = tokens[:, :-1], tokens[:, 1:]
    return F.cross_entropy(scores(given).reshape(-1, 6), wanted.reshape(-1), ignore_index=END)  # PL939
step(pad_sequence(texts, batch_first=True, padding_value=END)).backward()
""",
}
RIGHT = {
    "a number of its own": TEXTS
    + """
tokens = pad_sequence(texts, batch_first=True, padding_value=5)
F.cross_entropy(scores(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], ignore_index=5).backward()
""",
    "only what comes after the first": TEXTS
    + """
tokens = pad_sequence(texts, batch_first=True, padding_value=1)
wanted = tokens[:, 1:]
wanted = wanted.masked_fill((wanted == 1).cumsum(1) > 1, -100)
F.cross_entropy(scores(tokens[:, :-1]).transpose(1, 2), wanted).backward()
""",
    "sequences that end in different tokens": TEXTS
    + """
tokens = pad_sequence([each[:-1] for each in texts], batch_first=True, padding_value=1)
F.cross_entropy(scores(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], ignore_index=1).backward()
""",
    "a measure": TEXTS
    + """
tokens = pad_sequence(texts, batch_first=True, padding_value=1)
with torch.no_grad():
    print(F.cross_entropy(scores(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], ignore_index=1))
""",
}


def test_they_are_found_and_the_fix_gives_the_first_one_its_loss(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL939",), repaired=True)


def test_a_flat_target_is_followed_to_its_table(shop: Workshop) -> None:
    assert_found(shop, together(FLAT), only=("PL939",))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
