/* Takes the fat binaries that the build made (src/device/CMakeLists.txt) into the library. */
#include "device/image.h"

/* A byte of 0 follows the file, which may be empty. */
#define IMAGE(name, file)                                                                          \
    __asm__(".section .rodata." name ", \"a\"\n"                                                   \
            ".balign 64\n"                                                                         \
            ".globl " name "\n"                                                                    \
            ".hidden " name "\n"                                                                   \
            ".type " name ", @object\n" name ":\n"                                                 \
            ".incbin \"" file "\"\n"                                                               \
            ".byte 0\n"                                                                            \
            ".size " name ", . - " name "\n"                                                       \
            ".previous\n")

IMAGE("tt_device_image", TT_IMAGE_FILE);
IMAGE("tt_device_older_image", TT_OLDER_IMAGE_FILE);

const char tt_device_image_holds[] = TT_IMAGE_HOLDS;
