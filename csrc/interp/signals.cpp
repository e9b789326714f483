// See signals.h.
#include "signals.h"

#include "compat.h"

namespace magpy {

namespace {

thread_local int tls_held = 0;
thread_local unsigned long tls_main = 0;

int run_handlers(void*) { return PyErr_CheckSignals(); }

void begin() { tls_main = compat::take_main_thread(); }

void end() {
  if (tls_main == 0) return;
  compat::give_main_thread(tls_main);
  tls_main = 0;
  // The interpreter has looked at those that came, and let them be: it has to look again.
  if (compat::signals_came()) Py_AddPendingCall(run_handlers, nullptr);
}

PyObject* py_hold_signals(PyObject*, PyObject*) {
  hold_signals();
  Py_RETURN_NONE;
}

PyObject* py_release_signals(PyObject*, PyObject*) {
  release_signals();
  Py_RETURN_NONE;
}

// let_signals_in(f): calls f with them let in.
PyObject* py_let_signals_in(PyObject*, PyObject* f) {
  SignalsLetIn now;
  return PyObject_CallNoArgs(f);
}

PyMethodDef functions[] = {
    {"hold_signals", py_hold_signals, METH_NOARGS,
     "No handler of a signal runs on this thread until release_signals()."},
    {"release_signals", py_release_signals, METH_NOARGS, nullptr},
    {"let_signals_in", py_let_signals_in, METH_O,
     "let_signals_in(f): calls f, and handlers run as ever."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void hold_signals() {
  if (tls_held++ == 0) begin();
}

void release_signals() {
  if (--tls_held == 0) end();
}

SignalsLetIn::SignalsLetIn() : held_(tls_held) {
  if (held_ == 0) return;
  tls_held = 0;
  end();
}

SignalsLetIn::~SignalsLetIn() {
  if (held_ == 0) return;
  tls_held = held_;
  begin();
}

int init_signals(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace magpy
