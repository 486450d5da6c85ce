/* The standard streams of the project's programs: tools, perf tests, trainer. */
#ifndef TUTTI_PROGRAMS_STREAMS_H
#define TUTTI_PROGRAMS_STREAMS_H

/* Opens /dev/null for every standard stream that is closed: the next file, pipe or socket would get
 * its number, and the lines that are printed. The first call of main, before there are threads. */
void streams_open(void);

/* streams_open, and a program that ends with an error and exit code 1 where not all that it has
 * printed to stdout can be written. `program` is its name, in static storage. */
void streams_begin(const char *program);

#endif
