// The extension module magpy._interp: everything native that deals with the interpreter and not
// with torch.
//
// Owns: the module object and the order in which the parts add their functions to it.  Does not
// own: any of the functions; each part has an `init_*` in its own header's contract.  Called by the
// import system only.  The parts are declared weak, so that the module can be built (and a part
// tested) while another part's file is absent.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "ref.h"

namespace magpy {

#define MAGPY_PART(name) __attribute__((weak)) int name(PyObject* module)
MAGPY_PART(init_classes);
MAGPY_PART(init_signals);
MAGPY_PART(init_session);
MAGPY_PART(init_iterators);
MAGPY_PART(init_frame_eval);
MAGPY_PART(init_probes);
MAGPY_PART(init_guards);
MAGPY_PART(init_dispatch);
MAGPY_PART(init_trees);
#undef MAGPY_PART

}  // namespace magpy

namespace {

PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    "magpy._interp",
    "The frame-evaluation hook, the probes, the capture session, native guards and the dispatcher.",
    -1,
};

}  // namespace

PyMODINIT_FUNC PyInit__interp() {
  magpy::Ref module = magpy::Ref::steal(PyModule_Create(&module_def));
  if (!module) return nullptr;
  using Part = int (*)(PyObject*);
  // The session first: the others report to it.
  const Part parts[] = {magpy::init_classes,   magpy::init_signals,    magpy::init_session,
                        magpy::init_iterators, magpy::init_frame_eval, magpy::init_probes,
                        magpy::init_guards,    magpy::init_dispatch,   magpy::init_trees};
  for (Part part : parts) {
    if (part != nullptr && part(module.get()) < 0) return nullptr;
  }
  return module.release();
}
