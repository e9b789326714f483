# eager: a warning is neither a text nor a Warning
import warnings

class Node:
    pass
head = Node()

def f(message):
    head.n = message
    warnings.warn(message)
target = f

def steps(f):
    for message in ({}, {}, [1], {}):
        head.n = 0
        yield attempt(f, message), head.n
