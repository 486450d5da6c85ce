// Block 0 hands a value to block 1: data, then a flag. Without the fences the flag orders nothing.
extern "C" __global__ void pass(int *data, volatile int *flag, int *result, int fences)
{
    if (blockIdx.x == 0) {
        *data = 42;
        if (fences) __threadfence();
        *flag = 1;
    } else {
        while (*flag == 0) {}
        if (fences) __threadfence();
        *result = *data;
    }
}
