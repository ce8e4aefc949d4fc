# ExecuTorch's runtime out of a checkout, by the name that its wheel gives it. Of the rest of ExecuTorch
# nothing is built: neither kernels nor backends.
set(EXECUTORCH_BUILD_PORTABLE_OPS OFF CACHE BOOL "")
set(EXECUTORCH_BUILD_EXECUTOR_RUNNER OFF CACHE BOOL "")
set(EXECUTORCH_BUILD_EXTENSION_TENSOR ON CACHE BOOL "")
set(EXECUTORCH_BUILD_PTHREADPOOL OFF CACHE BOOL "")
set(EXECUTORCH_BUILD_CPUINFO OFF CACHE BOOL "")
set(EXECUTORCH_ENABLE_LOGGING OFF CACHE BOOL "") # the runtime says itself what is wrong
set(EXECUTORCH_ENABLE_PROGRAM_VERIFICATION ON CACHE BOOL "") # bundles may come from anywhere
add_subdirectory(${EXECUTORCH_SOURCE} executorch EXCLUDE_FROM_ALL SYSTEM)
add_library(executorch_runtime INTERFACE)
target_link_libraries(executorch_runtime INTERFACE executorch extension_tensor)
add_library(executorch::runtime ALIAS executorch_runtime)
