# Source files that a table of C names: one file and one line of the table are all that a new one needs.

# tt_files_of_table(LIST TABLE WORD): adds FOLDER/name.c to LIST for each line WORD(NAME, name) of TABLE, which lies in FOLDER.
function(tt_files_of_table list table word)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
    get_filename_component(folder ${table} DIRECTORY)
    file(STRINGS ${table} lines REGEX "^[ \t]*${word}")
    set(files ${${list}})
    foreach(line IN LISTS lines)
        set(where "${CMAKE_CURRENT_SOURCE_DIR}/${table}, the line '${line}'")
        if(NOT line MATCHES "^${word}\\(([A-Z][A-Z0-9_]*), ([a-z][a-z0-9_]*)\\)$")
            message(FATAL_ERROR "${where}: expected ${word}(NAME, name), as ${word}(ABC, abc) for the file ${folder}/abc.c: "
                "from the beginning of the line, one blank behind the comma, nothing behind the bracket")
        endif()
        set(file ${folder}/${CMAKE_MATCH_2}.c)
        if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
            message(FATAL_ERROR "${where}: expected the file ${file}, which is not there")
        endif()
        list(APPEND files ${file})
    endforeach()
    set(${list} ${files} PARENT_SCOPE)
endfunction()
