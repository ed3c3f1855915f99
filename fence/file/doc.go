// Package file guards a file by a high-water mark: it is replaced as a whole, or appended to, and a holder that a
// successor has overtaken is refused.
//
// Beside FILE stands FILE.fence, the side file. It carries the lock under which everything happens, and the state: the
// marks, and how the content looked before and after the operation that wrote the state. The guarded file itself is
// never locked, because it is replaced by a rename and a lock stays with what was renamed away.
//
// An operation takes the lock, reads the state, decides by [fence.Admit] or [fence.Enter], makes the new state durable,
// changes the content, makes that durable, and lets go. So a refused claim has changed nothing, and the mark is never
// behind the content. A crash at any point, of the process or of the machine, leaves one of few things, and whoever has the lock next settles it:
//
//   - The state stands twice in the side file, each copy with a checksum. The second is written when the first is
//     durable, the content is touched when both are. So a crash spoils at most one copy, of an operation that had changed nothing. Whoever
//     finds two copies that differ makes both equal and durable before anything else. If neither can be read the file is
//     refused ([ErrCorrupt]): no mark is ever guessed, and none begins again at zero.
//   - [File.Replace] and [File.Update] write FILE.fence-new, make it durable, record its inode in the state, rename it over the file
//     and make the folder durable. The file has the recorded inode or the former one: new or old, never half.
//   - [File.Append] records the length before, the length after and a checksum of what comes between. Bytes
//     that are there in full and have that checksum are kept. Anything less was not acknowledged, because an append is acknowledged when its bytes are
//     durable: it is cut off before anybody reads or writes. So an acknowledged append is never lost, and another is there whole or not at all.
//   - Content that fits neither has been changed by somebody else, and is refused ([ErrChanged]) by all but Replace.
//   - A guarded file whose side file is gone is refused ([ErrNoMark]), because the side file is durable before the first content. A side
//     file has a random name of its own inside, and its states are numbered: a File that has used it notices another one, or an older copy ([ErrReplaced]).
//
// What it does not do. The mark notices no expiry: see package fence. Programs that open the file by other means are not
// stopped, and what they append or rename is noticed, not what they change in place (but within what was appended last: that is taken for an
// append that crashed, and cut off); a reader among them may see the
// tail of an append that is under way. A process that is stopped inside an operation keeps all others waiting, each for as long as its context
// lets it ([ErrBusy] says who); a killed one does not. Access lists and extended attributes are not carried over by Replace.
// FILE and FILE.fence belong together: who deletes both, or restores both from a copy, has taken the mark back. One kernel's
// locks are meant: file systems of a network are refused unless [Options] says that their locks are shared by all machines, and FAT
// always, which does not number its files lastingly.
package file
