/* Takes the fat binary that nvcc made (src/device/CMakeLists.txt) into the library. */
#include "device/image.h"

__asm__(".section .rodata.tt_device_image, \"a\"\n"
        ".balign 64\n"
        ".globl tt_device_image\n"
        ".hidden tt_device_image\n"
        ".type tt_device_image, @object\n"
        "tt_device_image:\n"
        ".incbin \"" TT_IMAGE_FILE "\"\n"
        ".size tt_device_image, . - tt_device_image\n"
        ".previous\n");

const char tt_device_image_holds[] = TT_IMAGE_HOLDS;
