// Nothing: the headers that test programs share are precompiled with it (tests/CMakeLists.txt).
