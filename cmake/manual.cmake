# Man pages and completions, from --help of the program that was built.
find_package(Python3 COMPONENTS Interpreter)
if(BALLAST_ENGINE AND Python3_FOUND)
  include(GNUInstallDirs)
  set(manual ${CMAKE_CURRENT_BINARY_DIR}/manual)
  set(completions ${manual}/ballast.bash ${manual}/_ballast ${manual}/ballast.fish)
  set(programs ballast_program)
  if(TARGET ballast_eval AND NOT SKBUILD)  # which `ballast` starts for some commands
    list(APPEND programs ballast_eval)
  endif()
  add_custom_command(OUTPUT ${completions}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/manual.py
            ${manual} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:ballast_program>
    DEPENDS ${programs} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/manual.py)
  add_custom_target(ballast_manual ALL DEPENDS ${completions})
  set(share ${CMAKE_INSTALL_DATADIR})
  set(component ballast)
  if(SKBUILD)  # beside the environment's own
    set(share ${SKBUILD_DATA_DIR}/share)
    set(component python3-ballast)
  endif()
  install(DIRECTORY ${manual}/man1 DESTINATION ${share}/man COMPONENT ${component})
  install(FILES ${manual}/ballast.bash DESTINATION ${share}/bash-completion/completions
          RENAME ballast COMPONENT ${component})
  install(FILES ${manual}/_ballast DESTINATION ${share}/zsh/vendor-completions
          COMPONENT ${component})
  install(FILES ${manual}/ballast.fish DESTINATION ${share}/fish/vendor_completions.d
          COMPONENT ${component})
endif()
