/* What the model runs: ranks that publish and wait with the library's own code. */
#ifndef TT_TESTS_MODEL_SCENARIOS_H
#define TT_TESTS_MODEL_SCENARIOS_H

#include "machine.h"

extern const struct tt_scenario tt_scenarios[];
extern const int tt_nscenarios;

/* A mutant of the work: what it looks at while its rank's sleep is armed is left out. */
extern bool tt_scenarios_look_once;

#endif
