# eager: the call changes an array from outside
import array, operator
numbers = array.array('d', [1.0, 2.0])
def f(): 
    numbers.append(3.0)
    numbers[0] += 1
    return len(numbers), sum(numbers)
target=f
def steps(f):
    for i in range(4): yield attempt(f)
