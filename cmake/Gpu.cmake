# The GPU backend: built when there is a CUDA compiler, else backend/null.
# SIGNET_GPU says which. One architecture, Hopper's own features included.
include(CheckLanguage)
option(SIGNET_GPU_WANTED "Build the GPU backend where nvcc is found" ON)
set(SIGNET_GPU OFF)
if(SIGNET_GPU_WANTED AND NOT SIGNET_SANITIZE)
  check_language(CUDA)
  find_package(CUDAToolkit 12.4 QUIET)
  if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
    enable_language(CUDA)
    # CMake 3.25 knows nvcc's dialects up to C++17.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    set(SIGNET_GPU ON)
  else()
    message(STATUS "No nvcc of CUDA 12.4 or newer: built without GPU backend")
  endif()
endif()

# Adds the kernels to the backend's library; contraction stays off as in the
# C++ code.
function(signet_gpu_backend target)
  if(NOT SIGNET_GPU)
    return()
  endif()
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/src/backend/gpu/*.cu)
  target_sources(${target} PRIVATE ${kernels})
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false
      --expt-relaxed-constexpr -Xcompiler=-march=x86-64-v3>)
  target_link_libraries(${target} PUBLIC CUDA::cudart_static
    ${CMAKE_DL_LIBS})
endfunction()
