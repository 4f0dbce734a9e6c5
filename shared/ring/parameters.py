"""Parameters of the ring, what they allow, and how hard they are to break.

R_q = Z_q[x] / (x^N + 1), q a product of primes p = 1 mod 2N below 2^31; those of releases are 1 mod 8N, which proofs
need. An integer m is encrypted as m Delta plus errors, Delta = 2^scale_bits times the product of the primes that a
reply drops: there is no plaintext modulus, sums are integers. Bounds are proved in docs/proofs/linear-encryption.md,
sections 2 to 4.
"""

from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from math import e, log2, pi, prod, sqrt

from commingle.shared.ring.errors import DomainError

ENTRY_LIMIT = 1 << 14  # |x| of an entry of a column, both sides
ROWS_LIMIT = 1 << 24
MESSAGE_LIMIT = 1 << 63  # |m| of what a reply opens to
FLOODED_BITS = 40  # floods hide the noise of all openings of a release up to a distance of 2^-40
PRIME_LIMIT = 1 << 31  # four products of residues fit 64 bits


@dataclass(frozen=True, slots=True)
class Parameters:
    """A ring, its primes and the sizes of what is added.

    Attributes:
        degree: N, a power of two.
        primes: all, those that a reply keeps first.
        kept: how many a reply keeps.
        scale_bits: log2 of the scale of a message in a reply.
        flood_bits: floods are uniform in [-2^flood_bits, 2^flood_bits).
        error_bound: errors are centred binomial on [-error_bound, error_bound], of variance error_bound / 2.

    Raises:
        DomainError: some opening could be wrong (the proof's 3.2).
    """

    degree: int
    primes: tuple[int, ...]
    kept: int
    scale_bits: int
    flood_bits: int
    error_bound: int = 21

    def __post_init__(self) -> None:
        """A parameter set under which some reply could be opened to another integer does not come into being."""
        if any(p >= PRIME_LIMIT or p % (2 * self.degree) != 1 for p in self.primes):
            raise DomainError(f"primes are 1 modulo {2 * self.degree} and below 2^31")
        if 2 * (self.largest_noise(ROWS_LIMIT) + (1 << self.flood_bits)) + self.dropped * (self.degree + 1) >= (
            self.dropped << self.scale_bits
        ):
            raise DomainError("errors and floods do not fit below half of the scale")
        if (2 * MESSAGE_LIMIT + 1) << self.scale_bits >= self.kept_modulus:
            raise DomainError("messages of 64 bits do not fit what a reply keeps")

    @property
    def modulus(self) -> int:
        """The modulus q of ciphertexts."""
        return prod(self.primes)

    @property
    def kept_modulus(self) -> int:
        """The modulus of replies, q over what is dropped."""
        return prod(self.primes[: self.kept])

    @property
    def dropped(self) -> int:
        """The product of the primes that a reply drops."""
        return prod(self.primes[self.kept :])

    @property
    def delta(self) -> int:
        """What a message is multiplied by in a ciphertext."""
        return self.dropped << self.scale_bits

    @property
    def digest(self) -> bytes:
        """Names the parameters in what public randomness is hashed from: 32 bytes."""
        facts = (self.degree, *self.primes, self.kept, self.scale_bits, self.flood_bits, self.error_bound)
        return sha256(",".join(map(str, facts)).encode()).digest()

    def largest_noise(self, rows: int) -> int:
        """Beyond this the noise of a sum over so many rows cannot be before its flood, whatever was drawn (2.2)."""
        return self.error_bound * (rows * ENTRY_LIMIT + 2 * self.degree)

    def flood_distance(self, rows: int, openings: int) -> float:
        """Total variation between all openings of a release and openings whose noise tells nothing (4.2), at most."""
        deviation = sqrt(self.error_bound / 2 * (rows * ENTRY_LIMIT**2 + 2 * self.degree))
        return openings * deviation / 2.0 ** (self.flood_bits + 1)

    def flood_delta(self, noise: int) -> Fraction:
        """The chance that a flood lies where it tells of a sum's noise, which is at most V: V / 2^flood_bits.

        Sums with a flood that stay V inside its range have one law, whatever the noise (docs/proofs/delta.md, 1.3).
        """
        return Fraction(noise, 1 << self.flood_bits)

    def most_openings(self, noise: int) -> int:
        """Of one release: more are not flooded to 2^-40, whatever noise of at most V each has.

        C V / 2^(flood_bits + 1) <= 2^-40 (docs/proofs/proved-bounds.md, 7.1).
        """
        return (1 << self.flood_bits + 1 - FLOODED_BITS) // noise

    def security_bits(self) -> float:
        """The cost of the best known attack on the ring, in bits: `primal_attack_bits` of these parameters."""
        return primal_attack_bits(self.degree, log2(self.modulus), error_deviation=sqrt(self.error_bound / 2))


def primal_attack_bits(degree: int, modulus_bits: float, *, error_deviation: float) -> float:
    """log2 of the operations that recover a ternary secret by lattice reduction, classically.

    The embedding of Bai and Galbraith with as many samples as suit it: BKZ of the least block size beta for which a
    projection of the secret is shorter than what the last block holds (Alkim, Ducas, Poeppelmann, Schwabe 2016),
    sqrt(beta) sigma <= root^(2 beta - d - 1) volume^(1 / d), costs 8 d 2^(0.292 beta + 16.4), as the Homomorphic
    Encryption Standard counts (Albrecht et al. 2018). Its table of ternary secrets is what the tests hold this against.
    """
    stretch = log2(error_deviation / sqrt(2 / 3))  # puts errors and secret on one scale

    def dimension(beta: int) -> float:
        return sqrt(degree * (modulus_bits - stretch) / _log_root(beta))

    def broken(beta: int) -> bool:
        d = max(dimension(beta), degree + 2.0)
        volume = ((d - degree - 1) * modulus_bits + degree * stretch) / d
        return log2(error_deviation) + log2(beta) / 2 <= (2 * beta - d - 1) * _log_root(beta) + volume

    beta = next(beta for beta in range(50, 16 * degree) if broken(beta))
    return 0.292 * beta + 16.4 + log2(8 * dimension(beta))


def _log_root(beta: int) -> float:
    """Chen's root Hermite factor of BKZ with block size beta, log2."""
    return log2((pi * beta) ** (1 / beta) * beta / (2 * pi * e)) / (2 * (beta - 1))


STANDARD = Parameters(
    degree=8192,
    primes=(2147352577, 2146959361, 2146041857, 2145976321, 2144796673),  # the largest that are 1 modulo 8N: 155 bits
    kept=3,
    scale_bits=28,
    flood_bits=88,
)
"""What releases use: 187 bits by `security_bits`, where the standard's table allows 218 bits of q for 128."""
