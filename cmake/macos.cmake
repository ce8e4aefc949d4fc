# macOS on Apple silicon, by PyPI's ziglang, which brings Darwin's headers and the list of what its system library has; and
# by tools of Debian's llvm-16. ZIG is the program.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ZIG)
set(CMAKE_C_COMPILER ${ZIG} cc)
set(CMAKE_CXX_COMPILER ${ZIG} c++)
set(CMAKE_C_COMPILER_TARGET aarch64-macos.14.0)
set(CMAKE_CXX_COMPILER_TARGET aarch64-macos.14.0)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON) # a change after linking would break the signature, which nothing here can renew
set(CMAKE_OSX_SYSROOT "")
set(CMAKE_OSX_DEPLOYMENT_TARGET "")
foreach(tool ar ranlib nm strip otool install-name-tool)
  string(TOUPPER "CMAKE_${tool}" variable)
  string(REPLACE - _ variable ${variable})
  set(${variable} /usr/bin/llvm-${tool}-16)
endforeach()
