/* The architectures, in the order of the choices of --model: ARCHITECTURE(GPT2, gpt2) is TR_GPT2,
 * --model=gpt2 and tr_gpt2, which gpt2.c of this folder defines. A new one goes to the end. */
ARCHITECTURE(GPT2, gpt2)
ARCHITECTURE(LLAMA, llama)
#undef ARCHITECTURE
