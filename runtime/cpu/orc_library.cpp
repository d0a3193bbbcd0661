// libsplitkv_cpu: textual IR to an object file, and object files to machine code in memory, through
// LLVM's ORC LLJIT.
#include <llvm/AsmParser/Parser.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/CompileUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "runtime/cpu/orc_interface.h"

struct splitkv_orc_object {
  std::unique_ptr<llvm::MemoryBuffer> file;
};

struct splitkv_orc_code {
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

namespace {

void start_llvm_once() {
  static std::once_flag started;
  std::call_once(started, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

llvm::Error failure(const llvm::Twine& text) {
  return llvm::make_error<llvm::StringError>(text, llvm::inconvertibleErrorCode());
}

// What LLVM is told of the machine; splitkv_orc_describe says the same.
struct Machine {
  std::string cpu;
  llvm::SubtargetFeatures features;
};

Machine machine_of(llvm::StringRef cpu) {
  if (cpu != "host") return {cpu.str(), {}};
  const auto known = llvm::sys::getHostCPUFeatures();
  std::map<std::string, bool> sorted;
  for (const auto& feature : known) sorted[feature.first().str()] = feature.second;
  Machine machine{llvm::sys::getHostCPUName().str(), {}};
  for (const auto& [name, enabled] : sorted) machine.features.AddFeature(name, enabled);
  return machine;
}

llvm::Expected<llvm::orc::JITTargetMachineBuilder> machine_builder(llvm::StringRef cpu) {
  auto builder = llvm::orc::JITTargetMachineBuilder(llvm::Triple(llvm::sys::getProcessTriple()));
  const Machine machine = machine_of(cpu);
  builder.setCPU(machine.cpu);
  builder.getFeatures() = machine.features;
  builder.setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
  // Asked before a TargetMachine exists: that one would print to stderr and take another cpu.
  std::string why;
  const llvm::Target* target =
      llvm::TargetRegistry::lookupTarget(builder.getTargetTriple().str(), why);
  if (target == nullptr) return failure(why);
  const std::unique_ptr<llvm::MCSubtargetInfo> info(
      target->createMCSubtargetInfo(builder.getTargetTriple().str(), "", ""));
  if (!info->isCPUStringValid(builder.getCPU())) {
    return failure("LLVM knows no cpu '" + builder.getCPU() + "' of " +
                   builder.getTargetTriple().str());
  }
  return builder;
}

llvm::Expected<std::unique_ptr<llvm::Module>> parse(const splitkv_orc_request& request,
                                                    llvm::LLVMContext& context,
                                                    const llvm::TargetMachine& machine) {
  llvm::SMDiagnostic diagnostic;
  auto module =
      llvm::parseAssemblyString(llvm::StringRef(request.ir, request.ir_bytes), diagnostic, context);
  if (!module) {
    return failure("line " + llvm::Twine(diagnostic.getLineNo()) + ": " + diagnostic.getMessage() +
                   ": " + diagnostic.getLineContents());
  }
  module->setTargetTriple(machine.getTargetTriple().str());
  module->setDataLayout(machine.createDataLayout());
  std::string complaints;
  llvm::raw_string_ostream stream(complaints);
  if (llvm::verifyModule(*module, &stream))
    return failure("the verifier refuses it: " + complaints);
  return module;
}

// The text is vectorised and unrolled by hand; what is left to do is to take the stack out of
// registers' way and invariants out of loops. LLVM's own O1 takes five times as long for the same
// code.
constexpr const char* kPasses =
    "function(sroa,early-cse,simplifycfg,instcombine<no-verify-fixpoint>,"
    "loop-mssa(loop-rotate,licm),gvn,simplifycfg,dce)";

llvm::Error optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  if (auto error = builder.parsePassPipeline(passes, kPasses)) return error;
  passes.run(module, modules);
  return llvm::Error::success();
}

llvm::Expected<size_t> text_bytes(llvm::MemoryBufferRef buffer) {
  auto object = llvm::object::ObjectFile::createObjectFile(buffer);
  if (!object) return object.takeError();
  size_t bytes = 0;
  for (const llvm::object::SectionRef& section : (*object)->sections()) {
    if (section.isText()) bytes += section.getSize();
  }
  return bytes;
}

llvm::Expected<void*> address_of(llvm::orc::LLJIT& jit, const char* name) {
  auto address = jit.lookup(name);
  if (!address) return address.takeError();
  return address->toPtr<void*>();
}

void collect(const llvm::DiagnosticInfo* info, void* complaints) {
  if (info->getSeverity() != llvm::DS_Error) return;
  llvm::raw_string_ostream stream(*static_cast<std::string*>(complaints));
  llvm::DiagnosticPrinterRawOStream printer(stream);
  info->print(printer);
}

llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> compile(const splitkv_orc_request& request) {
  start_llvm_once();
  auto builder = machine_builder(request.cpu);
  if (!builder) return builder.takeError();
  auto machine = builder->createTargetMachine();
  if (!machine) return machine.takeError();
  llvm::LLVMContext context;
  std::string complaints;  // what LLVM would print, or exit for, otherwise
  context.setDiagnosticHandlerCallBack(&collect, &complaints);
  auto module = parse(request, context, **machine);
  if (!module) return module.takeError();
  if (auto error = optimise(**module, **machine)) return error;
  auto object = llvm::orc::SimpleCompiler(**machine)(**module);
  if (!object) return object.takeError();
  if (!complaints.empty()) return failure(complaints);
  return object;
}

llvm::Expected<splitkv_orc_result> load(const splitkv_orc_load_request& request) {
  start_llvm_once();
  auto builder = machine_builder(request.cpu);
  if (!builder) return builder.takeError();
  // A copy: objects want to lie aligned, and the caller's bytes need not outlive this call.
  auto object = llvm::MemoryBuffer::getMemBufferCopy(
      llvm::StringRef(request.object, request.object_bytes), "splitkv_kernel");
  auto bytes = text_bytes(object->getMemBufferRef());
  if (!bytes) return bytes.takeError();
  std::string complaints;
  auto jit = llvm::orc::LLJITBuilder()
                 .setJITTargetMachineBuilder(*builder)
                 .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                 .create();
  if (!jit) return jit.takeError();
  (*jit)->getExecutionSession().setErrorReporter(
      [&](llvm::Error error) { complaints += llvm::toString(std::move(error)); });
  if (auto error = (*jit)->addObjectFile(std::move(object))) return error;
  splitkv_orc_result result{nullptr, nullptr, nullptr, *bytes};
  auto split = address_of(**jit, request.split_entry);
  if (!split) return failure(llvm::toString(split.takeError()) + complaints);
  result.split = *split;
  if (request.reduce_entry[0] != '\0') {
    auto reduce = address_of(**jit, request.reduce_entry);
    if (!reduce) return failure(llvm::toString(reduce.takeError()) + complaints);
    result.reduce = *reduce;
  }
  (*jit)->getExecutionSession().setErrorReporter(
      [](llvm::Error error) { llvm::consumeError(std::move(error)); });
  result.code = new splitkv_orc_code{std::move(*jit)};
  return result;
}

void write_message(llvm::Error error, char* message, size_t capacity) {
  const std::string text = llvm::toString(std::move(error));
  const size_t length = std::min(text.size(), capacity - 1);
  std::memcpy(message, text.data(), length);
  message[length] = '\0';
}

}  // namespace

#define SPLITKV_EXPORT __attribute__((visibility("default")))

extern "C" {

SPLITKV_EXPORT int splitkv_orc_version() { return SPLITKV_ORC_VERSION; }

SPLITKV_EXPORT size_t splitkv_orc_describe(const char* cpu, char* text, size_t capacity) {
  const Machine machine = machine_of(cpu);
  const std::string all =
      LLVM_VERSION_STRING "\n" + machine.cpu + "\n" + machine.features.getString() + "\n" + kPasses;
  if (capacity == 0) return all.size() + 1;
  const size_t length = std::min(all.size(), capacity - 1);
  std::memcpy(text, all.data(), length);
  text[length] = '\0';
  return all.size() + 1;
}

SPLITKV_EXPORT int splitkv_orc_compile(const splitkv_orc_request* request,
                                       splitkv_orc_object** object, char* message,
                                       size_t capacity) {
  message[0] = '\0';
  auto compiled = compile(*request);
  if (compiled) {
    *object = new splitkv_orc_object{std::move(*compiled)};
    return 0;
  }
  write_message(compiled.takeError(), message, capacity);
  return 1;
}

SPLITKV_EXPORT int splitkv_orc_load(const splitkv_orc_load_request* request,
                                    splitkv_orc_result* result, char* message, size_t capacity) {
  message[0] = '\0';
  auto loaded = load(*request);
  if (loaded) {
    *result = *loaded;
    return 0;
  }
  write_message(loaded.takeError(), message, capacity);
  return 1;
}

SPLITKV_EXPORT const char* splitkv_orc_object_bytes(const splitkv_orc_object* object,
                                                    size_t* bytes) {
  *bytes = object->file->getBufferSize();
  return object->file->getBufferStart();
}

SPLITKV_EXPORT void splitkv_orc_release_object(splitkv_orc_object* object) { delete object; }

SPLITKV_EXPORT void splitkv_orc_release(splitkv_orc_code* code) { delete code; }

}  // extern "C"
