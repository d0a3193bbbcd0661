// What all verbs share: exit statuses, and how an error reaches the user.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "compiler/result.hpp"

namespace splitkv::tool {

inline constexpr int kExitOk = 0;
inline constexpr int kExitCheckFailed = 1;
inline constexpr int kExitBadInput = 2;  // a text, an option or a file is at fault
inline constexpr int kExitMachine = 3;   // a library, a device or memory is

// Prints the error to stderr and gives the exit status that says whose fault it is.
int report(const Error& error);

// Prints that `option` has a `value` that cannot be, and what would work.
int bad_option(const std::string& option, const std::string& value, const std::string& what_works);

// The file of the running program; empty where the system does not tell.
std::string own_program();

// Each adds its verb to the app. When the verb is chosen its exit status goes to `status`, which
// must outlive the app.
void add_run(CLI::App& app, int& status);
void add_emit(CLI::App& app, int& status);
void add_compile(CLI::App& app, int& status);
void add_show(CLI::App& app, int& status);
void add_doctor(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);
void add_bench_host(CLI::App& app, int& status);
void add_explain(CLI::App& app, int& status);
void add_cache(CLI::App& app, int& status);
void add_pack(CLI::App& app, int& status);
void add_tune(CLI::App& app, int& status);

}  // namespace splitkv::tool
