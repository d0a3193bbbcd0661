// fmt's definitions, compiled into libsplitkv with hidden symbols where the system's fmt is a
// shared library, so that a program with another version of fmt meets none of it. The header that
// is included holds the bodies for fmt's own library; of templates those that the library's code
// leaves to it are instantiated below. One that is missing fails the link of libsplitkv.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template dragonbox::decimal_fp<float> dragonbox::to_decimal(float);
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double);
template locale_ref::locale_ref(const std::locale&);
template std::locale locale_ref::get<std::locale>() const;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template void buffer<char>::append(const char*, const char*);
#if FMT_VERSION < 110000
template void vformat_to(buffer<char>&, string_view, basic_format_args<buffer_context<char>>,
                         locale_ref);
#endif

}  // namespace detail
FMT_END_NAMESPACE
