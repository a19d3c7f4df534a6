# Man pages and completions, from --help of the program that was built.
find_package(Python3 COMPONENTS Interpreter)
if(BALLAST_ENGINE AND Python3_FOUND)
  include(GNUInstallDirs)
  set(manual ${CMAKE_CURRENT_BINARY_DIR}/manual)
  set(completions ${manual}/ballast.bash ${manual}/_ballast ${manual}/ballast.fish)
  set(programs ballast_program)
  if(TARGET ballast_eval)  # which `ballast` starts for some commands
    list(APPEND programs ballast_eval)
  endif()
  add_custom_command(OUTPUT ${completions}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/manual.py
            ${manual} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:ballast_program>
    DEPENDS ${programs} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/manual.py)
  add_custom_target(ballast_manual ALL DEPENDS ${completions})
  install(DIRECTORY ${manual}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT ballast)
  install(FILES ${manual}/ballast.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME ballast COMPONENT ballast)
  install(FILES ${manual}/_ballast DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions
          COMPONENT ballast)
  install(FILES ${manual}/ballast.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
          COMPONENT ballast)
endif()
