/* The tests whose answers are known, for those who change the axioms. */
#ifndef VGPU_LITMUS_KNOWN_H
#define VGPU_LITMUS_KNOWN_H

#include <stdbool.h>

/* Whether the axioms without these rules (enum vl_rule) still give the known answer of the test, or
 * NULL: of all tests. */
bool vl_known_holds(const char *name, unsigned without);

#endif
