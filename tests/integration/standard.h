/* A rank whose program touches descriptors behind the library's back. */
#ifndef TT_TESTS_INTEGRATION_STANDARD_H
#define TT_TESTS_INTEGRATION_STANDARD_H

#include <stdbool.h>

/* Closes descriptors 0 to 2 and uses the library in all its ways, with files of its own under these
 * numbers in the end. False, with lines "WRONG ..." on what was stderr: a descriptor of the library
 * had one of them, or something was written there, or a call failed. */
bool works_with_closed_standard_streams(void);

/* Uses the library, then closes all descriptors (closefrom(3)) and opens files of its own under
 * their numbers. False: the library wrote into them or closed one; or the error of the next call
 * does not say whose doing it is. */
bool survives_closefrom(void);

#endif
