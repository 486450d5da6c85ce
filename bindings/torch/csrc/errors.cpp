// Results of tutti's functions as PyTorch's exceptions.
#include "errors.hpp"

#include <cctype>
#include <cstdlib>
#include <string_view>

#include <c10/util/Exception.h>

namespace tutti_torch
{

namespace
{

/* What stands before the number of a rank in tutti's texts. */
constexpr std::string_view BEFORE_RANK[] = {"rank ", "send to ", "receive from "};
/* What follows counts ranks of another communicator. */
constexpr std::string_view ELSEWHERE = "(ranks as numbered there)";

bool is_digit(char c)
{
    return std::isdigit(static_cast<unsigned char>(c));
}

bool is_word(char c)
{
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

/* How long the number is with which the text begins; 0: it begins with none. */
size_t length_of_number(std::string_view text)
{
    size_t n = 0;
    while (n < text.size() && is_digit(text[n])) n++;
    const bool is_address = n + 1 < text.size() && text[n] == '.' && is_digit(text[n + 1]);
    return !is_address && (n == text.size() || !is_word(text[n])) ? n : 0;
}

/* How long the words are that say that a number of a rank follows; 0: none does. */
size_t length_before_rank(std::string_view text)
{
    for (const std::string_view before : BEFORE_RANK)
        if (text.starts_with(before) && length_of_number(text.substr(before.size())))
            return before.size();
    return 0;
}

} // namespace

std::string renumbered(const std::string &text, const Numbering &numbering)
{
    const std::string of_all = " of " + std::to_string(numbering.ranks.size());
    std::string result;
    std::string_view left(text);
    while (!left.empty()) {
        const bool is_inside = !result.empty() && is_word(result.back());
        size_t n = 1; /* characters that stay as they are */
        if (left.starts_with(ELSEWHERE))
            n = left.size();
        else if (!numbering.name.empty() && left.starts_with(numbering.name))
            n = numbering.name.size();
        else if (const size_t before = is_inside ? 0 : length_before_rank(left))
            n = before;
        result += left.substr(0, n);
        left.remove_prefix(n);
        const size_t ndigits = n > 1 && result.back() == ' ' ? length_of_number(left) : 0;
        if (!ndigits || ndigits > 9) continue;
        const auto rank = static_cast<size_t>(std::atoi(std::string(left, 0, ndigits).c_str()));
        if (rank >= numbering.ranks.size()) continue;
        result += std::to_string(numbering.ranks[rank]);
        left.remove_prefix(ndigits);
        if (left.starts_with(of_all)) left.remove_prefix(of_all.size());
    }
    return result;
}

std::string last_error(tuttiResult_t result, tuttiComm_t comm)
{
    const char *text = tuttiGetLastError(comm);
    return *text ? text : tuttiGetErrorString(result);
}

void check(tuttiResult_t result, tuttiComm_t comm)
{
    if (result == tuttiSuccess) return;
    TORCH_CHECK_WITH(DistBackendError, false, last_error(result, comm));
}

void check(tuttiResult_t result, tuttiComm_t comm, const Numbering &numbering)
{
    if (result == tuttiSuccess) return;
    TORCH_CHECK_WITH(DistBackendError, false, renumbered(last_error(result, comm), numbering));
}

std::string text_of(const std::exception_ptr &error)
{
    try {
        std::rethrow_exception(error);
    } catch (const c10::Error &known) {
        return known.what_without_backtrace();
    } catch (const std::exception &known) {
        return known.what();
    } catch (...) {
        return "an exception of an unknown kind";
    }
}

} // namespace tutti_torch
