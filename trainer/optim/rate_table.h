/* The schedules of the learning rate, in the order of the choices of --schedule: RATE(COSINE,
 * cosine, "cosine", CLOCK) is TR_RATE_COSINE, the function tr_rate_cosine (rate.h) and
 * --schedule=cosine. CLOCK: with --seconds it follows the clock; STEPS: it counts steps only. A new
 * one goes to the end. */
RATE(COSINE, cosine, "cosine", CLOCK)
RATE(CONSTANT, constant, "constant", CLOCK)
RATE(LINEAR, linear, "linear", CLOCK)
RATE(WSD, wsd, "wsd", CLOCK)
RATE(WARMUP, warmup_lr, "warmup-lr", CLOCK)
RATE(WARMUP_DECAY, warmup_decay_lr, "warmup-decay-lr", CLOCK)
RATE(WARMUP_COSINE, warmup_cosine_lr, "warmup-cosine-lr", CLOCK)
RATE(ONE_CYCLE, one_cycle, "one-cycle", STEPS)
RATE(RANGE_TEST, range_test, "lr-range-test", STEPS)
#undef RATE
