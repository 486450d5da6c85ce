/* The activations, in the order of the choices of --activation: ACTIVATION(GELU, gelu) is TR_GELU,
 * --activation=gelu and the operations that gelu.c of this folder defines. A new one goes to the
 * end. */
ACTIVATION(GELU, gelu)
ACTIVATION(RELU, relu)
ACTIVATION(RELU2, relu2)
#undef ACTIVATION
