/* The optimizers, in the order of the choices of --optimizer: OPTIMIZER(ADAMW, adamw) is TR_ADAMW,
 * --optimizer=adamw and the rule that adamw.c of this folder defines. A new one goes to the end. */
OPTIMIZER(ADAMW, adamw)
OPTIMIZER(SGD, sgd)
OPTIMIZER(LAMB, lamb)
OPTIMIZER(MUON, muon)
#undef OPTIMIZER
