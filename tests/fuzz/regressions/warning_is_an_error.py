# eager: warn is called: tests.fuzz.worlds._shown_in.<locals>.warned runs in it, Python of the
import torch, warnings
total = torch.zeros(2)
log = []
def caught(x):
    try:
        warnings.warn("hello", Notice)
    except Notice as error:
        return x * 2, str(error)
    return x + 1
def counts(x):
    total.add_(1)
    log.append(1)
    warnings.warn("hello", Notice)
    total.add_(10)
    log.append(2)
    return x + total
def quiet(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("quiet", Notice)
    return x + 1
def target(which, x):
    return which(x)
def steps(c):
    def calls(*kinds):
        return [attempt(c, which, torch.ones(2)) for which in kinds for _ in "ab"]
    yield c(caught, torch.ones(2))
    for action in ("error", "always", "error", "default", "ignore"):
        with warnings.catch_warnings():
            warnings.simplefilter(action, Notice)
            found = calls(caught, counts, quiet)
        yield found, total.clone()
        yield calls(caught, counts, quiet)
