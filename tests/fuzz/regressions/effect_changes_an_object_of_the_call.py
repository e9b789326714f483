# eager: eff is called: fuzz_world.eff runs in it, Python of the program that nobody watches there
import torch
import magpy
k=0
@magpy.effect
def eff(y): y['a']=k
def f(t):
    y={}
    eff(y)
    return y, t
target = f
def steps(f):
    global k
    for i in range(5):
        k = i
        yield attempt(f, torch.ones(2))
