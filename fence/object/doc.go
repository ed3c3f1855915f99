// Package object fences objects in S3-like stores: a write under a stale claim is refused, and changes nothing. The store itself needs to
// know one thing only, the conditional PUT (If-Match, If-None-Match); see [Bucket] and package s3 below this one.
//
// The high-water mark of package fence has to move in the same atomic step as the content, and an S3-like store has one atomic
// step: it replaces one object, if the object's ETag is still the one that was read. So mark and content are one object. An object that this
// package wrote begins with a line of text, of which the content follows as it was given:
//
//	tenure-object1 CLAIM NONCE present|absent SHA256
//
// CLAIM is the text form of the claim under which the object was last written or entered: authority, name and token are the mark. NONCE is
// drawn anew for each write. Who reads such an object by other means drops its first line (tail -n +2).
//
// # Why the mark is not in the object's metadata
//
// That is the obvious place, and it is wrong. The ETag of an ordinary PUT is the MD5 of its content: metadata are no part of it. A successor
// that enters, writing the same content with a newer mark beside it, leaves the ETag as it was, and the late PUT of its predecessor, whose
// If-Match names that ETag, succeeds: it replaces what the successor has read, and puts the older mark back. The same happens
// when content comes again (X, Y, X). With the line in front of the content each write has an ETag that no other write has or
// will have, so a condition that has failed once fails for ever. That also settles a PUT whose answer was lost: once anything
// else has been written it cannot land any more. A mark object beside immutable data objects would do as well, and keep the data plain;
// it takes two requests for each read and somebody to clean up, and is left to those with large data: put those under a key that is never
// written again, and keep that key in an object of this package.
//
// # What holds, and what does not
//
// The store must keep the conditions of a PUT atomically with the write, and its reads must see what was written before: Amazon's does both
// (the first since 2024, the second since 2020). Replicas of a bucket in other places are other resources.
//
// It is the high-water rule with its limits: it notices no expiry, and a former holder is accepted until its successor has touched the
// object. Who reads before writing uses [Update], or [Enter]s first.
//
// The mark is the object. Who deletes it by other means (a lifecycle rule, a person) deletes the mark with it; [Delete] keeps it. In a bucket that
// keeps versions, who deletes the latest one makes the one before it the object again, with its older mark and its ETag: a PUT that had failed can succeed. Who
// overwrites it by other means is not stopped, but noticed: the object has no such line then, and all writes here are refused with a
// [*FormatError] until [Adopt]. A bucket policy that denies PUTs without a condition (s3:if-match, where the store knows it) stops that too.
// An object belongs to the authority and the name whose claim first wrote it.
package object
