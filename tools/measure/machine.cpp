// tools/measure/machine.cpp
#include "measure/machine.hpp"

#include <dlfcn.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "cpu/threads.hpp"
#include "falchion/falchion.hpp"

namespace falchion::tools {
namespace {

/// The value of the first line of /proc/cpuinfo that begins with `key`.
std::string cpuinfo(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

}  // namespace

std::string cpu_model() {
  std::string model = cpuinfo("model name");
  if (!model.empty()) return model;
  const std::string part = cpuinfo("CPU part");  // Arm has no name there
  return part.empty() ? "unknown CPU" : "Arm part " + part;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  return "unknown";
#endif
}

std::string build_type() {
#if defined(NDEBUG)
  return "release";
#else
  return "debug";
#endif
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S%z}", fmt::localtime(now));
}

double clock_mhz() { return std::atof(cpuinfo("cpu MHz").c_str()); }

int cpu_count() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

double memory_bytes() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> out;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return out;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  const auto name = reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetName"));
  const auto attribute = reinterpret_cast<int (*)(int*, int, int)>(dlsym(driver, "cuDeviceGetAttribute"));
  int n = 0;
  if (init == nullptr || count == nullptr || name == nullptr || attribute == nullptr || init(0) != 0 || count(&n) != 0)
    return out;
  for (int i = 0; i < n; ++i) {
    char text[128] = {};
    int major = 0, minor = 0;
    constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
    if (name(text, sizeof text, i) == 0 && attribute(&major, kMajor, i) == 0 && attribute(&minor, kMinor, i) == 0)
      out.push_back(fmt::format("{} (sm_{}{})", text, major, minor));
  }
  return out;  // the driver stays loaded: unloading it is not safe
}

std::string commit() {
  const char* said = std::getenv("FALCHION_COMMIT");
  if (said != nullptr && *said != 0) return said;
  std::error_code none;
  std::ifstream beside(std::filesystem::read_symlink("/proc/self/exe", none).parent_path() / "commit");
  std::string out;
  std::getline(beside, out);
  return out;
}

std::string gpu_driver() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "";
  const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  const auto driver = reinterpret_cast<int (*)(char*, unsigned)>(dlsym(library, "nvmlSystemGetDriverVersion"));
  const auto cuda = reinterpret_cast<int (*)(int*)>(dlsym(library, "nvmlSystemGetCudaDriverVersion"));
  char version[80] = {};
  int number = 0;  // 13000 is CUDA 13.0
  const bool known = init != nullptr && driver != nullptr && cuda != nullptr && init() == 0 &&
                     driver(version, sizeof version) == 0 && cuda(&number) == 0;
  return known ? fmt::format("{}, CUDA {}.{}", version, number / 1000, number % 1000 / 10) : "";
}

std::string cpu_driver() {
  utsname system = {};
  uname(&system);
  return fmt::format("none (CPU), {}, {} {}", compiler(), system.sysname, system.release);
}

Json result_facts(const std::string& gpu, const std::vector<Json::Member>& measured) {
  double load[3] = {};
  const int loads = getloadavg(load, 3);
  const std::vector<Json> loads_known(load, load + (loads > 0 ? loads : 0));
  std::vector<Json::Member> context = {{"host_name", host_name()},           {"host_cpu", cpu_model()},
                                       {"executable", "falchion"},           {"num_cpus", cpu_count()},
                                       {"mhz_per_cpu", clock_mhz()},         {"cpu_scaling_enabled", false},
                                       {"caches", Json::array({})},          {"load_avg", Json::array(loads_known)},
                                       {"library_build_type", build_type()}, {"compiler", compiler()},
                                       {"falchion_version", version()}};
  context.insert(context.end(), measured.begin(), measured.end());
  return Json::object({{"commit", commit()},
                       {"date", date_now()},
                       {"device", gpu.empty() ? cpu_model() : gpu},
                       {"driver", gpu.empty() ? cpu_driver() : gpu_driver()},
                       {"context", Json::object(context)}});
}

}  // namespace falchion::tools
