// Package catalogue owns the list of images: what each has in it and how it starts. It is data; how images are made is the
// business of the command above it.
package catalogue

// Image is one of them.
type Image struct {
	Name       string // Repository below the registry, and the archive's name.
	Title      string // One line for people.
	Programs   []Program
	Packages   []string // Of Debian, with what they depend on.
	Without    []string // Dependencies that are left out, with what only they depend on.
	Drop       []string // Files of packages that are left out: shell patterns, with all below what matches.
	Files      []File
	Links      []Link
	Entrypoint []string
	Env        []string
	Ports      []string
	User       string // Number, so that runAsNonRoot can be checked.
	Licences   string // SPDX expression; of Bookinfo's images, of what is ours in them (the packages' are in /usr/share/doc).
	MostMB     int    // What the files may come to.
}

// Program is one of ours, from bin/, with the libraries that it is linked to.
type Program struct {
	Name string
	At   string // Path in the image.
}

// File is one of the repository.
type File struct {
	From, At string
}

// Link is a symbolic link.
type Link struct {
	At, Target string
}

// Suite is the Debian release that Bookinfo's images are made of.
const Suite = "bookworm"

// Nobody is the user of every image that does not have to be root.
const Nobody = "65532"

// path is where programs are looked for.
const path = "PATH=/usr/local/bin:/usr/bin:/bin"

// linked are the licences of the C library and of the compiler's that programs in Rust are linked to.
const linked = " AND LGPL-2.1-or-later AND (GPL-3.0-or-later WITH GCC-exception-3.1)"

// All are the images, in the order in which they are listed.
func All() []Image {
	return []Image{
		{
			Name: "control", Title: "Lateen's control plane",
			Programs:   []Program{{Name: "lateen-control", At: "usr/local/bin/lateen-control"}},
			Entrypoint: []string{"/usr/local/bin/lateen-control"},
			Env:        []string{path},
			Ports:      []string{"15012/tcp", "15014/tcp"},
			User:       Nobody, Licences: "Apache-2.0", MostMB: 80,
		},
		{
			// Root: it enters network namespaces, loads nftables and writes into the node's CNI folders.
			Name: "agent", Title: "Lateen's node agent, and its CNI plugin",
			Programs: []Program{
				{Name: "lateen-agent", At: "usr/local/bin/lateen-agent"},
				{Name: "lateen-cni", At: "opt/lateen/bin/lateen-cni"},
			},
			Entrypoint: []string{"/usr/local/bin/lateen-agent"},
			Env:        []string{path},
			Ports:      []string{"15014/tcp"},
			User:       "0", Licences: "Apache-2.0", MostMB: 40,
		},
		{
			// Root: the role node makes sockets in pods' network namespaces, and Kubernetes gives the capabilities for that
			// (NET_ADMIN, SYS_ADMIN, NET_RAW) to no other user. A role that needs none may be run as any user.
			Name: "proxy", Title: "Lateen's data plane",
			Programs:   []Program{{Name: "lateen-proxy", At: "usr/local/bin/lateen-proxy"}},
			Entrypoint: []string{"/usr/local/bin/lateen-proxy"},
			Env:        []string{path},
			Ports:      []string{"15001/tcp", "15006/tcp", "15008/tcp", "15020/tcp", "15021/tcp"},
			User:       "0", Licences: "Apache-2.0" + linked, MostMB: 30,
		},
		{
			Name: "load", Title: "Lateen's load generator and echo service",
			Programs:   []Program{{Name: "lateen-load", At: "usr/local/bin/lateen-load"}},
			Entrypoint: []string{"/usr/local/bin/lateen-load"},
			Env:        []string{path},
			User:       Nobody, Licences: "Apache-2.0" + linked, MostMB: 15,
		},
		bookinfo(Image{
			Name: "bookinfo-productpage", Title: "Bookinfo: the product page (Python)",
			Packages:   []string{"python3-minimal", "libpython3.11-stdlib"},
			Without:    []string{"dpkg", "media-types"},
			Files:      []File{{From: "samples/bookinfo/productpage/productpage.py", At: "opt/bookinfo/productpage.py"}},
			Entrypoint: []string{"/usr/bin/python3", "/opt/bookinfo/productpage.py"},
			Env:        []string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"},
			MostMB:     60,
		}),
		bookinfo(Image{
			Name: "bookinfo-details", Title: "Bookinfo: the details (Ruby)",
			Packages: []string{"ruby", "ruby-webrick"},
			Without: []string{
				"ca-certificates", "ruby-rubygems", "rake", "ruby-net-telnet", "ruby-xmlrpc", "ruby-sdbm",
			},
			Files:      []File{{From: "samples/bookinfo/details/details.rb", At: "opt/bookinfo/details.rb"}},
			Entrypoint: []string{"/usr/bin/ruby", "/opt/bookinfo/details.rb"},
			MostMB:     60,
		}),
		bookinfo(Image{
			Name: "bookinfo-ratings", Title: "Bookinfo: the ratings (Node.js)",
			Packages:   []string{"nodejs"},
			Files:      []File{{From: "samples/bookinfo/ratings/ratings.js", At: "opt/bookinfo/ratings.js"}},
			Entrypoint: []string{"/usr/bin/node", "/opt/bookinfo/ratings.js"},
			MostMB:     120,
		}),
		bookinfo(Image{
			Name: "bookinfo-reviews", Title: "Bookinfo: the reviews (Java)",
			Packages: []string{"openjdk-17-jre-headless"},
			// What paints, prints, plays and reads cards goes, with what that is linked to.
			Without: []string{
				"ca-certificates-java", "java-common", "libasound2", "libcups2", "libfontconfig1", "libfreetype6", "libharfbuzz0b",
				"libjpeg62-turbo", "liblcms2-2", "libnss3", "libpcsclite1", "util-linux",
			},
			Drop: []string{
				"usr/lib/jvm/*/lib/libawt*.so", "usr/lib/jvm/*/lib/libfontmanager.so", "usr/lib/jvm/*/lib/libj*sound.so",
				"usr/lib/jvm/*/lib/lib*jpeg.so", "usr/lib/jvm/*/lib/liblcms.so", "usr/lib/jvm/*/lib/libmlib_image.so", "usr/lib/jvm/*/lib/libj2pcsc.so",
				"usr/lib/jvm/*/lib/server/classes_nocoops.jsa", "usr/lib/jvm/*/man",
			},
			Files: []File{{From: "samples/bookinfo/reviews/Reviews.java", At: "opt/bookinfo/Reviews.java"}},
			// The link that Debian's installation makes.
			Links: []Link{{At: "usr/bin/java", Target: "../lib/jvm/java-17-openjdk-" + DebianArch() + "/bin/java"}},
			Entrypoint: []string{
				"/usr/bin/java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xms8m", "-Xmx48m", "-Xss256k",
				"-XX:-UsePerfData", "/opt/bookinfo/Reviews.java",
			},
			MostMB: 210,
		}),
	}
}

// bookinfo adds what Bookinfo's images have in common: Debian's name and licences, a port, a user who owns nothing.
func bookinfo(image Image) Image {
	image.Packages = append([]string{"base-files"}, image.Packages...)
	image.Without = append([]string{"awk"}, image.Without...)
	image.Drop = append([]string{"usr/share/base-files", "etc/profile.d"}, image.Drop...)
	image.Env = append([]string{path}, image.Env...)
	image.Ports = []string{"9080/tcp"}
	image.User = Nobody
	image.Licences = "Apache-2.0"
	return image
}

// Find returns an image by name.
func Find(name string) (Image, bool) {
	for _, image := range All() {
		if image.Name == name {
			return image, true
		}
	}
	return Image{}, false
}
