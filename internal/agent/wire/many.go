package wire

// Bounds of one FSReadFiles. The agent reads and the host asks for at most this much, so that both
// frames stay below MaxPayload.
const (
	MaxReadPaths = 256       // paths of one request
	MaxPathBytes = 256 << 10 // total length of the paths, in bytes
	MaxReadBytes = 64 << 10  // bytes of one file
	MaxReadReply = 256 << 10 // bytes of all files of one Reply
)

// FileContent is the first bytes of one file, as a Reply to FSReadFiles holds it. The Reply has one
// for each of the first paths, and at least one. The host asks again for the remaining paths.
type FileContent struct {
	Errno    uint32 // errno of the kernel, if the file could not be read
	Complete bool   // Bytes is the whole file
	Bytes    []byte
}

// AppendFileContent appends the encoding of c. File contents follow each other
// without a count.
func AppendFileContent(b []byte, c FileContent) []byte {
	b = append(appendU32(b, c.Errno), bit(c.Complete))
	return append(appendU32(b, uint32(len(c.Bytes))), c.Bytes...)
}

// DecodeFileContents reads what AppendFileContent wrote, to the end of p. Bytes share memory with
// p. The result never has more than MaxReadPaths elements.
func DecodeFileContents(p []byte) (all []FileContent, err error) {
	d := decoder{b: p}
	for len(d.b) > 0 && !d.failed && len(all) < MaxReadPaths {
		all = append(all, FileContent{Errno: d.u32(), Complete: d.truth(), Bytes: d.bytes()})
	}
	return all, d.end()
}

// AppendPaths appends the encoding of paths, as Bytes of an FSReadFiles.
func AppendPaths(b []byte, paths []string) []byte { return appendStrs(b, paths) }

// DecodePaths reads what AppendPaths wrote.
func DecodePaths(p []byte) ([]string, error) {
	d := decoder{b: p}
	paths := d.strs()
	return paths, d.end()
}

// AppendListing appends the entries of a directory. whole says that no entries follow them.
func AppendListing(b []byte, whole bool, infos []FileInfo) []byte {
	return AppendFileInfos(append(b, bit(whole)), infos)
}

// DecodeListing reads what AppendListing wrote.
func DecodeListing(p []byte) (whole bool, infos []FileInfo, err error) {
	d := decoder{b: p}
	if whole = d.truth(); d.failed {
		return false, nil, errShort
	}
	infos, err = DecodeFileInfos(d.b)
	return whole, infos, err
}
