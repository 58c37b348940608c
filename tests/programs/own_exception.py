# The learner's own exception, with a cause, in the middle of a graph.
import torch


class Broken(Exception):
    pass


def inner(x):
    y = x * 2
    if y.sum() > 1:
        raise KeyError("inside")
    return y


try:
    inner(torch.ones(2, requires_grad=True))
except KeyError as error:
    raise Broken("from <here>", 3) from error
