# cmake -DINPUT=FILE -DOUTPUT=FILE.cc -DNAME=name -P EmbedFile.cmake: the bytes of a file as the array hearth::NAME and NAME_size.
file(READ ${INPUT} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT}
  "#include <cstddef>\nnamespace hearth {\nextern const unsigned char ${NAME}[];\nextern const std::size_t ${NAME}_size;\n"
  "const unsigned char ${NAME}[] = {${bytes}};\nconst std::size_t ${NAME}_size = ${size};\n}\n")
