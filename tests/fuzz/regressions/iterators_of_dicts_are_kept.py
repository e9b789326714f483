# eager: a dict_keyiterator is kept, which magpy cannot make again
import collections
def f(k):
    d = {"a": k, "b": 2}
    return iter(d), zip(d.values()), iter(d.items()), reversed(d), d, enumerate({k}), map(str, d)
target = f
def steps(f):
    for i in range(3):
        r = attempt(f, 1)
        yield r
        r[4]["c"] = 3
        yield use(r)
