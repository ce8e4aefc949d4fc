#!/bin/bash
# Runs a command in a virtual machine with memory cgroups of version 2, for machines with version 1:
# in_cgroup2_vm.sh FOLDER COMMAND... FOLDER has the virtual machine's files, a kernel from Debian and a disk of up to
# 8 GB, and the command's output and exit status.
#
# The virtual machine can read this machine's files. Its writes are discarded, except in /scratch, the disk. Needs root
# and Debian's qemu-system-x86, cpio and e2fsprogs. It emulates the CPU, because KVM is often not available within
# virtual machines.
set -euo pipefail
folder=$(realpath "$1") here=$PWD
shift
mkdir -p "$folder/initramfs"
cd "$folder"
if [ ! -e kernel ]; then
  package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
  apt-get download -q "$package" busybox-static
  for deb in *.deb; do dpkg -x "$deb" packages; done
  cp packages/boot/vmlinuz-* kernel
  cp packages/bin/busybox initramfs/
  cp -r --parents packages/lib/modules/*/{modules.order,modules.builtin,kernel/{drivers/{virtio,block},fs/{9p,netfs,fscache,overlayfs,ext4,jbd2,mbcache.ko},net/9p,lib,crypto,arch}} initramfs/
  mv initramfs/packages/lib initramfs/lib
  initramfs/busybox depmod -b initramfs "$(ls initramfs/lib/modules)"
  rm -r packages ./*.deb initramfs/packages
fi
[ -e disk ] || { truncate -s 8G disk && mke2fs -q -t ext4 disk; }

cat > initramfs/init <<'INIT'
#!/busybox sh
/busybox mkdir -p /proc /sys /dev /host /upper /new /bin
/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for module in virtio_pci virtio_blk 9pnet_virtio 9p overlay crc32c_generic ext4; do modprobe $module; done
mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,msize=1048576,ro host /host
mount -t tmpfs tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/host,upperdir=/upper/files,workdir=/upper/work overlay /new
mkdir -p /new/scratch
mount -t ext4 /dev/vda /new/scratch
mount -t proc proc /new/proc
mount -t sysfs sys /new/sys
mount -t devtmpfs dev /new/dev
mkdir -p /new/dev/shm
mount -t tmpfs tmpfs /new/dev/shm
mount -t cgroup2 cgroup /new/sys/fs/cgroup
echo +memory > /new/sys/fs/cgroup/cgroup.subtree_control
ip link set lo up 2> /dev/null
chroot /new /bin/bash /scratch/command
sync
umount /new/scratch
poweroff -f
INIT
chmod +x initramfs/init
(cd initramfs && find . | cpio -o -H newc --quiet | gzip -1) > initramfs.gz

# Command and output travel on the disk: nothing else is written to from both sides.
{
  printf 'cd %q\nexport HOME=/scratch TMPDIR=/scratch PATH=%q\n' "$here" "$PATH"
  printf '%q ' "$@"
  printf '> /scratch/output 2>&1\necho $? > /scratch/code\n'
} > command
for file in command output code; do debugfs -w -R "rm $file" disk > /dev/null 2>&1; done
debugfs -w -R "write command command" disk > /dev/null 2>&1
qemu-system-x86_64 -cpu max -smp "$(nproc)" -m 6G -nodefaults -nographic -no-reboot -serial file:console \
  -kernel kernel -initrd initramfs.gz -append "console=ttyS0 quiet panic=-1" \
  -drive file=disk,format=raw,if=virtio,cache=unsafe \
  -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=host,mount_tag=host
for file in output code; do debugfs -R "dump $file $file" disk > /dev/null 2>&1; done
cat output
exit "$(cat code)"
