//! BPF instructions as data (RFC 9669), with labels for jump targets.

use std::os::fd::{AsRawFd, BorrowedFd};

/// A register. R10 is the top of the stack; R6 to R9 survive calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// How much a load or store moves.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Size {
    Word = 0x00,
    Byte = 0x10,
    Double = 0x18,
}

/// What a jump compares by.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Test {
    Equal = 0x10,
    /// Unsigned.
    Greater = 0x20,
    /// Unsigned.
    AtLeast = 0x30,
    Unequal = 0x50,
}

/// What is calculated.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Op {
    Add = 0x00,
    Sub = 0x10,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
}

const LDX: u8 = 0x01;
const STX: u8 = 0x03;
const ALU32: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
const MEM: u8 = 0x60;
const REGISTER: u8 = 0x08;
const MOV: u8 = 0xb0;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
const LOAD_64: u8 = 0x18;
/// The source "register" of a 64-bit load that says: the number is a map's descriptor.
const MAP: u8 = 1;

/// A place in a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label(usize);

/// A program as it grows.
#[derive(Debug, Default)]
pub(crate) struct Code {
    slots: Vec<u64>,
    /// Where each label stands, once that is known.
    labels: Vec<Option<usize>>,
    /// Jumps whose way is not filled in yet.
    jumps: Vec<(usize, Label)>,
}

impl Code {
    fn push(&mut self, code: u8, dst: Reg, src: u8, offset: i16, value: i32) {
        let registers = (dst as u8) | (src << 4);
        let mut slot = [0; 8];
        slot[0] = code;
        slot[1] = registers;
        slot[2..4].copy_from_slice(&offset.to_ne_bytes());
        slot[4..].copy_from_slice(&value.to_ne_bytes());
        self.slots.push(u64::from_ne_bytes(slot));
    }

    /// A name for a place that comes later.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label stands here.
    pub(crate) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.slots.len());
    }

    /// `dst = src`
    pub(crate) fn mov(&mut self, dst: Reg, src: Reg) {
        self.push(ALU64 | MOV | REGISTER, dst, src as u8, 0, 0);
    }

    /// `dst = value`, its sign kept.
    pub(crate) fn set(&mut self, dst: Reg, value: i32) {
        self.push(ALU64 | MOV, dst, 0, 0, value);
    }

    /// `dst = ` the map.
    pub(crate) fn map(&mut self, dst: Reg, map: BorrowedFd<'_>) {
        self.push(LOAD_64, dst, MAP, 0, map.as_raw_fd());
        self.slots.push(0);
    }

    /// `dst = dst op value`, in 64 bits.
    pub(crate) fn with(&mut self, op: Op, dst: Reg, value: i32) {
        self.push(ALU64 | op as u8, dst, 0, 0, value);
    }

    /// `dst = dst op src`, in 64 bits.
    pub(crate) fn by(&mut self, op: Op, dst: Reg, src: Reg) {
        self.push(ALU64 | op as u8 | REGISTER, dst, src as u8, 0, 0);
    }

    /// `dst = dst op src`, in 32 bits; the upper half becomes 0.
    pub(crate) fn by32(&mut self, op: Op, dst: Reg, src: Reg) {
        self.push(ALU32 | op as u8 | REGISTER, dst, src as u8, 0, 0);
    }

    /// `dst = *(src + offset)`
    pub(crate) fn load(&mut self, size: Size, dst: Reg, src: Reg, offset: i16) {
        self.push(LDX | MEM | size as u8, dst, src as u8, offset, 0);
    }

    /// `*(dst + offset) = src`
    pub(crate) fn store(&mut self, size: Size, dst: Reg, offset: i16, src: Reg) {
        self.push(STX | MEM | size as u8, dst, src as u8, offset, 0);
    }

    /// Calls a helper of the kernel.
    pub(crate) fn call(&mut self, helper: i32) {
        self.push(JMP | CALL, Reg::R0, 0, 0, helper);
    }

    /// Goes to `to` if `dst` is to `value` as tested, in 64 bits.
    pub(crate) fn jump_if(&mut self, test: Test, dst: Reg, value: i32, to: Label) {
        self.jumps.push((self.slots.len(), to));
        self.push(JMP | test as u8, dst, 0, 0, value);
    }

    /// Goes to `to` if `dst` is to `src` as tested, in 64 bits.
    pub(crate) fn jump_by(&mut self, test: Test, dst: Reg, src: Reg, to: Label) {
        self.jumps.push((self.slots.len(), to));
        self.push(JMP | test as u8 | REGISTER, dst, src as u8, 0, 0);
    }

    /// Goes to `to` if the lower half of `dst` is to that of `src` as tested.
    pub(crate) fn jump_by32(&mut self, test: Test, dst: Reg, src: Reg, to: Label) {
        self.jumps.push((self.slots.len(), to));
        self.push(JMP32 | test as u8 | REGISTER, dst, src as u8, 0, 0);
    }

    /// Ends the program with R0 as its answer.
    pub(crate) fn exit(&mut self) {
        self.push(JMP | EXIT, Reg::R0, 0, 0, 0);
    }

    /// The finished program.
    ///
    /// # Panics
    /// A jump leads to a label that stands nowhere, or too far away: an error of the program's text.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        for (from, label) in self.jumps {
            let to = self.labels[label.0].expect("the label stands somewhere");
            let way = i16::try_from(to as isize - from as isize - 1).expect("a short jump");
            let mut slot = self.slots[from].to_ne_bytes();
            slot[2..4].copy_from_slice(&way.to_ne_bytes());
            self.slots[from] = u64::from_ne_bytes(slot);
        }
        self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::Reg::*;
    use super::*;

    fn bytes(code: Code) -> Vec<[u8; 8]> {
        code.finish().into_iter().map(u64::to_le_bytes).collect()
    }

    /// As `llvm-mc --triple=bpfel` encodes the same text.
    #[test]
    fn instructions_are_encoded_as_the_standard_says() {
        let mut code = Code::default();
        code.mov(R6, R1);
        code.set(R0, -1);
        code.load(Size::Word, R7, R1, 76);
        code.load(Size::Byte, R2, R10, -16);
        code.store(Size::Double, R10, -8, R7);
        code.with(Op::Lsh, R3, 3);
        code.by(Op::Add, R9, R3);
        code.by32(Op::Sub, R1, R2);
        code.call(113);
        code.exit();
        let expected = [
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
            [0xb7, 0x00, 0, 0, 0xff, 0xff, 0xff, 0xff],
            [0x61, 0x17, 76, 0, 0, 0, 0, 0],
            [0x71, 0xa2, 0xf0, 0xff, 0, 0, 0, 0],
            [0x7b, 0x7a, 0xf8, 0xff, 0, 0, 0, 0],
            [0x67, 0x03, 0, 0, 3, 0, 0, 0],
            [0x0f, 0x39, 0, 0, 0, 0, 0, 0],
            [0x1c, 0x21, 0, 0, 0, 0, 0, 0],
            [0x85, 0x00, 0, 0, 113, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes(code), expected);
    }

    #[test]
    fn a_jump_counts_from_the_instruction_behind_it() {
        let mut code = Code::default();
        let (end, start) = (code.label(), code.label());
        code.place(start);
        code.jump_if(Test::Unequal, R1, 0, end);
        code.jump_by32(Test::Greater, R1, R2, start);
        code.place(end);
        code.exit();
        let code = bytes(code);
        assert_eq!(code[0], [0x55, 0x01, 1, 0, 0, 0, 0, 0]);
        assert_eq!(code[1], [0x2e, 0x21, 0xfe, 0xff, 0, 0, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "stands somewhere")]
    fn a_label_without_a_place_is_an_error_of_the_text() {
        let mut code = Code::default();
        let nowhere = code.label();
        code.jump_if(Test::Equal, R0, 0, nowhere);
        code.finish();
    }
}
