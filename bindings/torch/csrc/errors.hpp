// Results of tutti's functions as PyTorch's exceptions.
#ifndef TUTTI_TORCH_ERRORS_H
#define TUTTI_TORCH_ERRORS_H

#include <exception>
#include <string>
#include <vector>

#include <tutti.h>

namespace tutti_torch
{

/* The library cuts the name of a communicator after so many characters. */
inline constexpr size_t LONGEST_NAME = 63;

/* How the ranks of a communicator are numbered in the group that it belongs to. */
struct Numbering {
    std::string name;       /* of the communicator, as the library has it */
    std::vector<int> ranks; /* rank r of the communicator is ranks[r]; empty: r itself */
};

/* A text of tutti's about the communicator, with the group's numbers of the ranks. Left as they
 * are: other numbers, the communicator's name, and what a text tells of other communicators. */
std::string renumbered(const std::string &text, const Numbering &numbering);

/* The text of the last error: of `comm` when it has failed, else of the calling thread. */
std::string last_error(tuttiResult_t result, tuttiComm_t comm);

/* Throws c10::DistBackendError with tutti's text where result is an error. comm may be NULL. */
void check(tuttiResult_t result, tuttiComm_t comm);
void check(tuttiResult_t result, tuttiComm_t comm, const Numbering &numbering);

/* What an exception says, without where it was thrown. */
std::string text_of(const std::exception_ptr &error);

} // namespace tutti_torch

#endif
