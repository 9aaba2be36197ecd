/* version.h: the version of these headers. This is the only place for the number: CMake, the packages and version()
 * read it here. fal_version() and falchion::version() tell the version of the library that is linked. */
#ifndef FALCHION_VERSION_H
#define FALCHION_VERSION_H

#define FAL_VERSION_MAJOR 0
#define FAL_VERSION_MINOR 1
#define FAL_VERSION_PATCH 0

#endif /* FALCHION_VERSION_H */
