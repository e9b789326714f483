# eager: warn is called: tests.fuzz.worlds._shown_in.<locals>.warned runs in it, Python of the
import logging
import warnings
records = []

class Keep(logging.Handler):

    def emit(self, record):
        records.append((record.filename, record.lineno, record.funcName))
logger = logging.Logger('fuzz')
logger.disabled = False
logger.addHandler(Keep())

def helper(n):
    warnings.warn(n, Notice, stacklevel=2)

def f(n):
    warnings.warn(n, Notice)
    helper(n)
    logger.warning(n)
target = f

def steps(f):
    for n in ('a', 'a', 'b'):
        yield attempt(f, n)
        warnings.resetwarnings()
        warnings.simplefilter('always')
