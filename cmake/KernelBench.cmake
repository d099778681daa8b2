# signet_kernel_bench opens the kernels without a program, so only tests and
# benchmarks may link it (contract X1): targets declared below tests/ and bench/
# and the rooms' own NAME_test. What every other target links, however far, is
# walked here; one that reaches it stops the configuration.

function(signet_check_kernel_bench)
  signet_product_targets(${PROJECT_SOURCE_DIR} products)
  foreach(product IN LISTS products)
    set(seen "")
    set(open ${product})
    while(open)
      list(POP_FRONT open target)
      list(APPEND seen ${target})
      get_target_property(own ${target} LINK_LIBRARIES)
      get_target_property(passed_on ${target} INTERFACE_LINK_LIBRARIES)
      foreach(entry IN LISTS own passed_on)
        # Also inside a generator expression, whatever its condition.
        if(entry MATCHES "signet_kernel_bench")
          message(FATAL_ERROR "${product} reaches signet_kernel_bench through "
            "${target}; only tests and benchmarks may link it")
        endif()
        string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" entry "${entry}")
        if(TARGET "${entry}" AND NOT entry IN_LIST seen)
          list(APPEND open ${entry})
        endif()
      endforeach()
      list(REMOVE_DUPLICATES open)
    endwhile()
  endforeach()
endfunction()

function(signet_product_targets folder out)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  list(FILTER targets EXCLUDE REGEX "_test$")
  get_property(below DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder IN LISTS below)
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${subfolder})
    if(NOT name MATCHES "^(tests|bench)(/|$)")
      signet_product_targets(${subfolder} more)
      list(APPEND targets ${more})
    endif()
  endforeach()
  set(${out} ${targets} PARENT_SCOPE)
endfunction()
